"""dual.py - exact arithmetic for the goldens: 50-digit dual numbers, branches that keep away from kinks, means and deviations."""
from decimal import Decimal, getcontext

getcontext().prec = 50
ZERO, ONE = Decimal(0), Decimal(1)


# -------------------------------------------------------------------------------------------------------------------- dual numbers
class Dual:
    """value + sparse derivatives {variable: d value / d variable}."""
    __slots__ = ("value", "grad")

    def __init__(self, value, grad=None):
        self.value, self.grad = Decimal(value), grad or {}

    def chain(self, value, slope):
        return Dual(value, {k: slope * g for k, g in self.grad.items()})

    def __add__(self, other):
        return total([self, lift(other)])

    def __mul__(self, other):
        other = lift(other)
        left, right = self.chain(ZERO, other.value), other.chain(ZERO, self.value)
        return Dual(self.value * other.value, total([left, right]).grad)

    def __neg__(self):
        return self.chain(-self.value, -ONE)

    def __sub__(self, other):
        return self + -lift(other)

    def __rsub__(self, other):
        return -self + other

    def inverse(self):
        return self.chain(ONE / self.value, -ONE / self.value**2)

    def __truediv__(self, other):
        return self * lift(other).inverse()

    def __rtruediv__(self, other):
        return self.inverse() * other

    __radd__, __rmul__ = __add__, __mul__

    def exp(self):
        value = self.value.exp()
        return self.chain(value, value)

    def ln(self):
        return self.chain(self.value.ln(), ONE / self.value)

    def stop(self):
        return Dual(self.value)


def lift(x):
    return x if isinstance(x, Dual) else Dual(x)


def total(items):
    """Σ of duals in one pass: adding them pairwise would copy the derivatives each time."""
    value, grad = ZERO, {}
    for item in items:
        value += item.value
        for k, g in item.grad.items():
            grad[k] = grad.get(k, ZERO) + g
    return Dual(value, grad)


# ------------------------------------------------------------------------------------------------------------ kinks and small sums
class NearKink(Exception):
    """The drawn batch sits where rounding could pick the branch."""


class Kinks:
    margin = Decimal("1e-3")


def above(x, edge):
    """x > edge, for numbers that are clearly on one side."""
    if abs(x - edge) < Kinks.margin:
        raise NearKink
    return x > edge


def sign(x):
    """−1, 0 or 1; 0 only for an exact 0."""
    return 0 if x == 0 else 1 if above(x, ZERO) else -1


def clip(x, low, high):
    """A clipped value is a constant: its derivative is 0."""
    if above(x.value, low) and not above(x.value, high):
        return x
    return Dual(low if x.value < low else high)


def bounded(x, low, high):
    return min(max(x, low), high)


def mean(xs):
    return sum(xs, ZERO) / len(xs)


def unbiased_variance(xs):
    m = mean(xs)
    return sum(((x - m) ** 2 for x in xs), ZERO) / (len(xs) - 1)


def unbiased_std(xs):
    return ZERO if len(xs) < 2 or equal(xs) else unbiased_variance(xs).sqrt()


def equal(xs):
    """Equal up to the rounding of the doubles they came from: such a group has advantage exactly 0."""
    return max(xs) - min(xs) <= Decimal("1e-12") * max(map(abs, xs))


def decimals(xs):
    return [None if x is None else Decimal(x) for x in xs]
