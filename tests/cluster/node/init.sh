#!/usr/bin/env bash
# The first process of the cluster's namespaces: sets up network and cgroups, starts every part and starts
# it again when it ends. `cluster up` calls it with the folder of the state, and wires the network meanwhile.
set -euo pipefail
state=$1
# shellcheck disable=SC1091
source "$state/settings"
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$bin:$PATH HOME=$state
log=$state/log pki=$state/pki socket=$state/containerd/containerd.sock
exec 9>&- || true

# part NAME COMMAND…: keeps it running. A part that is killed comes back, as it would under systemd.
part() {
    local name=$1
    shift
    while true; do
        "$@" >>"$log/$name.log" 2>&1 &
        echo $! >"$state/pids/$name"
        wait $! || true
        echo "-- $name ended; it is started again" >>"$log/$name.log"
        sleep 0.5
    done &
}

# --- network ----------------------------------------------------------------------------------------------------

mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
# Mounts of pods must reach their containers.
mount --make-rshared /
hostname "$node"
ip link set lo up
ip link add pods0 type bridge
ip address add "$node_ip/22" dev pods0
ip link set pods0 up
sysctl -qw net.ipv4.ip_forward=1
touch "$state/waiting"
until [[ -e $state/wired ]]; do sleep 0.02; done
ip address add "$inner_ip/30" dev eth0
ip link set eth0 up
ip route add default via "$host_ip"

# --- cgroups: all of ours below one, so that `down` can take it away and touches no other ------------------------

if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
    mkdir -p "/sys/fs/cgroup/$cgroup"
else
    for hierarchy in /sys/fs/cgroup/*/; do
        [[ -f $hierarchy/cgroup.procs && ! -L ${hierarchy%/} ]] || continue
        mkdir -p "$hierarchy$cgroup"
        # An empty cpuset takes no process.
        for file in cpuset.cpus cpuset.mems; do
            [[ ! -f $hierarchy$file ]] || cat "$hierarchy$file" >"$hierarchy$cgroup/$file"
        done
    done
fi

# --- containers -------------------------------------------------------------------------------------------------

cat >"$state/containerd.toml" <<TOML
version = 2
root = "$state/containerd/root"
state = "$state/containerd/state"
oom_score = 0

[grpc]
  address = "$socket"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # Where an OOM score may not be lowered, no pod would start.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
TOML
cat >"$state/cni/10-pods.conflist" <<JSON
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$state/addresses",
        "ranges": [[{"subnet": "$pods", "gateway": "$node_ip", "rangeStart": "10.89.0.16"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
JSON
part containerd containerd --config "$state/containerd.toml"

# --- the control plane -------------------------------------------------------------------------------------------

# Nothing here outlives the run, so etcd need not wait for the disk.
part etcd etcd --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster default=http://127.0.0.1:2380
part kube-apiserver kube-apiserver \
    --etcd-servers http://127.0.0.1:2379 \
    --bind-address 0.0.0.0 --secure-port 6443 --advertise-address "$node_ip" --service-cluster-ip-range "$services" \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-signing-key-file "$pki/accounts.key" --service-account-key-file "$pki/accounts.pub" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --kubelet-client-certificate "$pki/admin.crt" --kubelet-client-key "$pki/admin.key" \
    --kubelet-preferred-address-types InternalIP \
    --audit-policy-file "$here/audit-policy.yaml" --audit-log-path "$log/audit.log" --audit-log-maxsize 4096
until ctr --address "$socket" version >/dev/null 2>&1; do sleep 0.1; done
ctr --address "$socket" --namespace k8s.io images import "$cache/pause.tar" >/dev/null
until kubectl --kubeconfig "$state/admin.inner" get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
# There is one of each, so nobody is elected. Queries are not rationed: a test makes hundreds of objects at once.
part kube-controller-manager kube-controller-manager --kubeconfig "$state/kube-controller-manager.inner" \
    --leader-elect=false --use-service-account-credentials --kube-api-qps 300 --kube-api-burst 500 \
    --service-account-private-key-file "$pki/accounts.key" --root-ca-file "$pki/ca.crt"
part kube-scheduler kube-scheduler --kubeconfig "$state/kube-scheduler.inner" --leader-elect=false \
    --kube-api-qps 300 --kube-api-burst 500
part kube-proxy kube-proxy --kubeconfig "$state/kube-proxy.inner" --hostname-override "$node" \
    --proxy-mode iptables --cluster-cidr "$pods" --conntrack-max-per-core 0

cat >"$state/Corefile" <<CORE
.:53 {
    bind $node_ip
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig $state/coredns.inner
        ttl 1
    }
    cache 1
}
CORE
part coredns coredns -conf "$state/Corefile"

# --- the node ---------------------------------------------------------------------------------------------------

cat >"$state/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet.crt
tlsPrivateKeyFile: $pki/kubelet.key
containerRuntimeEndpoint: unix://$socket
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
featureGates: {KubeletInUserNamespace: true}
clusterDomain: cluster.local
clusterDNS: [$node_ip]
resolvConf: /dev/null
# 20 awake lanes, their embedders, 50 lanes that cannot start and what a test brings: more than the usual 110.
maxPods: 400
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
registryPullQPS: 0
# A patched extended resource is allocatable only after the next heartbeat.
nodeStatusUpdateFrequency: 2s
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
YAML
part kubelet kubelet --config "$state/kubelet.yaml" --kubeconfig "$state/kubelet.inner" --hostname-override "$node" \
    --node-ip "$node_ip" --root-dir "$state/kubelet"

# Children of dead containers become ours: whoever is first must take note of their end.
while true; do wait -n || true; sleep 0.2; done
