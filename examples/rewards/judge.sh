#!/bin/sh
# A judge in shell: 1 for a response of at most LIMIT tokens (100) that came to an end by itself, else 0.
#
#     --reward 'sh examples/rewards/judge.sh 50'
#
# One JSON object a line comes in for each response; a plain number is answer enough. Fields are cut out without a parser: inside of
# a JSON text every " has a \ before it, so '"tokens": ' cannot be part of one, and the keys always come in the same order.
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
