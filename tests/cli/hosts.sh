#!/bin/bash
# hosts.sh: hosts that are network namespaces of this machine, each with a cable (a veth pair) to one switch (a bridge). A script sources it:
#
#     hosts_up 4                    node1 to node4, at 10.77.0.1 to 10.77.0.4
#     hosts_rate 1gbit              what every host may send in a second; 0: as much as it can
#     hosts_mpirun 2 rein run …     on the first two, mpirun on node1; its daemons start through a launch agent that enters a host
#     hosts_cable 2 down            pulls the cable of node2; up: plugs it in
#     hosts_idle 10                 waits until they have nothing left to do, at most 10 s
#     hosts_down
#
# A namespace exists as long as the process that holds it, and such a process ends with this script. Nothing of the machine's own network
# changes. Needs root and the right to make namespaces (hosts_allowed says whether).
hosts=()
switch=

hosts_allowed() { # 1: namespaces, bridges and limits are not allowed here, and $hosts_why has the first line of the reason
    hosts_why=$(unshare -n -u sh -ec '
        hostname node1; ip link add bridge type bridge; ip link add port1 type veth peer name eth0
        ip link set port1 master bridge; tc qdisc add dev port1 root tbf rate 1gbit burst 256kb latency 50ms' 2>&1 | head -1)
    [ -z "$hosts_why" ]
}

inside() { # inside HOST COMMAND…: by number; 0 is the switch
    local process=$switch
    if [ "$1" != 0 ]; then process=${hosts[$1 - 1]}; fi
    shift
    nsenter -t "$process" -n -u -- "$@"
}

# Waits until a process has namespaces of its own.
wait_for_namespace() {
    for _ in $(seq 200); do
        if [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ] &&
            [ "$(readlink "/proc/$1/ns/uts")" != "$(readlink /proc/self/ns/uts)" ]; then return; fi
        sleep 0.02
    done
    return 1
}

hold_namespace() { # leaves the process in $held
    unshare -n -u setpriv --pdeathsig KILL sleep infinity </dev/null >/dev/null 2>&1 &
    held=$!
    disown
    wait_for_namespace "$held"
}

hosts_up() { # hosts_up N
    local i
    hold_namespace && switch=$held
    inside 0 sh -ec 'ip link add bridge type bridge; ip link set bridge up'
    for i in $(seq "$1"); do
        hold_namespace && hosts+=("$held")
        inside 0 ip link add "port$i" type veth peer name eth0 netns "$held"
        inside 0 ip link set "port$i" master bridge up
        inside "$i" sh -ec "hostname node$i; ip link set lo up; ip addr add 10.77.0.$i/24 dev eth0; ip link set eth0 up"
    done
    {
        # What mpirun calls instead of ssh: AGENT ADDRESS WORD…, the words for a shell.
        printf '#!/bin/sh\n# shellcheck disable=SC2086\ncase $1 in\n'
        for i in $(seq "$1"); do printf '10.77.0.%d) process=%d ;;\n' "$i" "${hosts[$i - 1]}"; done
        printf '*) echo "no such host: $1" >&2; exit 1 ;;\nesac\nshift\nexec nsenter -t "$process" -n -u -- sh -c "$*"\n'
    } >launch-agent
    chmod +x launch-agent
}

hosts_down() {
    local process
    for process in "${hosts[@]}" $switch; do kill "$process"; done 2>/dev/null
    hosts=()
    switch=
}

hosts_rate() { # hosts_rate RATE
    local i
    for i in $(seq ${#hosts[@]}); do
        inside "$i" tc qdisc del dev eth0 root 2>/dev/null
        if [ "$1" != 0 ]; then inside "$i" tc qdisc add dev eth0 root tbf rate "$1" burst 256kb latency 50ms; fi
    done
}

hosts_cable() { # hosts_cable HOST up|down; returns when both ends have noticed
    local want=$2 i
    inside 0 ip link set "port$1" "$2"
    if [ "$want" = down ]; then want=NO-CARRIER; else want=LOWER_UP; fi
    for _ in $(seq 100); do
        if inside "$1" ip link show eth0 | grep -q "[<,]$want" &&
            { [ "$2" = down ] || inside 0 ip -d link show "port$1" | grep -q 'state forwarding'; }; then break; fi
        sleep 0.05
    done
    # A search for a neighbour that began while the cable was out would fail after it is in again, and with it a new connection.
    for i in $(seq ${#hosts[@]}); do inside "$i" ip neigh flush dev eth0; done
}

# hosts_idle SECONDS: waits until no command runs on any host. A daemon that still cleans up would delete the files of the next one.
hosts_idle() {
    local process until=$((SECONDS + $1))
    for process in "${hosts[@]}"; do
        while [ "$(lsns -n -t net -o NPROCS -p "$process")" -gt 1 ]; do
            if [ "$SECONDS" -ge "$until" ]; then return 1; fi
            sleep 0.05
        done
    done
}

# mpirun looks for a daemon that went silent only if it is told to: after 2 + 3 · 1 s here (docs/cluster.md).
hosts_mpirun() { # hosts_mpirun N WORD…
    local n=$1 i list=
    shift
    for i in $(seq "$n"); do list=$list${list:+,}10.77.0.$i; done
    inside 1 mpirun -n "$n" --host "$list" --map-by node --mca plm_rsh_agent "$PWD/launch-agent" --mca btl self,tcp \
        --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 "$@"
}
