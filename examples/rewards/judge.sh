#!/bin/sh
# A judge in shell: 1 for a response of at most LIMIT tokens (default: 100) that was not truncated, else 0.
#
#     --reward 'sh examples/rewards/judge.sh 50'
#
# Each response is a line of JSON on stdin; the answer may be a plain number. Fields are found without a parser: inside a JSON string
# every " has a \ before it, so '"tokens": ' cannot be part of one, and the keys always have the same order.
limit=${1:-100}
while IFS= read -r line; do
    tokens=${line#*'"tokens": '}
    truncated=${line#*'"truncated": '}
    if [ "${tokens%%,*}" -le "$limit" ] && [ "${truncated%%,*}" = false ]; then
        echo 1
    else
        echo 0
    fi
done
