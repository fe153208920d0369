/* value.h - the loss of a critic's value V of one token, whose return is G. Private.
 *
 *     L = ½·mean max((V − G)², (clip(V, V_old ± c) − G)²)
 *     dL/dV = (V − G)/N where |V − V_old| ≤ c or (V − G)² ≥ (clip − G)², else 0 */
#ifndef REIN_OBJECTIVE_VALUE_H
#define REIN_OBJECTIVE_VALUE_H

/* The greater of the two squares, and its slope by V, halved: 0 where the clipped square is the greater one. */
static inline double rein_value_square(double *slope, double value, double old, double target, double clip) {
    const double low = old - clip, high = old + clip;
    const double near = value < low ? low : value > high ? high : value;
    const double free_gap = value - target, clipped_gap = near - target;
    const int free_wins = near == value || free_gap * free_gap >= clipped_gap * clipped_gap;
    *slope = free_wins ? free_gap : 0;
    return free_wins ? free_gap * free_gap : clipped_gap * clipped_gap;
}

#endif
