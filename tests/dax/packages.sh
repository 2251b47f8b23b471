#!/usr/bin/env bash
# Gets QEMU, a kernel and busybox from Debian's archive into a cache, unpacked and never installed, and prints the
# directory. Exit code 77: they cannot be had here (the reason is on stderr).
#
# apt verifies the signatures as always. Its own files are private to the cache; the machine's sources are used as
# they are, and backports of the same mirror are added where the machine's own QEMU is too old for the plugin.
set -euo pipefail

cache="${XDG_CACHE_HOME:-$HOME/.cache}/entresol/dax"
# QEMU with plugin interface 4: memory and registers can be read.
qemu_version_min=9.2
layout=1

cannot() {
    echo "$*" >&2
    exit 77
}

[ "$(uname -sm)" = "Linux x86_64" ] || cannot "the guest is a PC: this is $(uname -sm)"
for tool in apt-get apt-cache dpkg dpkg-deb; do
    command -v "$tool" >/dev/null || cannot "$tool was not found: packages come from Debian's archive"
done
# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$codename" ] || cannot "/etc/os-release names no release"

root="$cache/root-$codename-$layout"
if [ -f "$root/complete" ]; then
    echo "$root"
    exit 0
fi

apt="$cache/apt"
mkdir -p "$apt"/{lists/partial,archives/partial,sources}
chmod 755 "$apt"/{lists,archives}{,/partial}
rm -f "$apt"/sources/* "$apt"/archives/*.deb
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    if [ -e "$file" ]; then cp "$file" "$apt/sources/"; fi
done
options=(
    -qq
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache::archives=$apt/archives"
    -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache="
    -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$apt/sources"
    -o "Debug::NoLocking=1" -o "APT::Get::AllowUnauthenticated=false"
)
# The cache may lie in a home that apt's own user cannot read.
if [ "$(id -u)" = 0 ]; then options+=(-o "APT::Sandbox::User=root"); fi

update() {
    timeout 120 apt-get "${options[@]}" update >&2 || cannot "the package lists cannot be downloaded"
}

candidate() {
    apt-cache "${options[@]}" policy "$1" | awk '/Candidate:/ {print $2}'
}

update
release=()
if ! dpkg --compare-versions "$(candidate qemu-system-x86 | sed 's/^[0-9]*://')" ge "$qemu_version_min"; then
    mirror=$(apt-get "${options[@]}" indextargets --format '$(REPO_URI)|$(CODENAME)|$(CREATED_BY)' |
        awk -F'|' -v codename="$codename" '$2 == codename && $3 == "Packages" {print $1; exit}')
    [ -n "$mirror" ] || cannot "no mirror of $codename is known to apt"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    signed=$([ -e "$keys" ] && echo "[signed-by=$keys] " || true)
    echo "deb $signed$mirror $codename-backports main" >"$apt/sources/entresol-backports.list"
    update
    release=(-t "$codename-backports")
fi

kernel=$(apt-cache "${options[@]}" depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
[ -n "$kernel" ] || cannot "there is no package linux-image-cloud-amd64"
# Downloads QEMU (also where it is installed) with the libraries that this machine lacks; installs nothing.
timeout 300 apt-get "${options[@]}" install --yes --download-only --no-install-recommends --reinstall \
    "${release[@]}" qemu-system-x86 qemu-system-common qemu-system-data seabios ipxe-qemu >&2 || cannot "QEMU cannot be downloaded"
(cd "$apt/archives" && timeout 300 apt-get "${options[@]}" download busybox-static "$kernel" >&2) ||
    cannot "the kernel cannot be downloaded"

unpacked="$root.new"
rm -rf "$unpacked"
mkdir -p "$unpacked"
for package in "$apt"/archives/*.deb; do
    dpkg-deb --extract "$package" "$unpacked"
done
rm -f "$apt"/archives/*.deb

# What the guest loads, in the order in which it does.
busybox=$(find "$unpacked/bin" "$unpacked/usr/bin" -name busybox 2>/dev/null | head -1)
mkdir -p "$unpacked/guest"
cp "$busybox" "$unpacked/guest/busybox"
cp "$unpacked"/boot/vmlinuz-* "$unpacked/guest/vmlinuz"
number=1
for module in libnvdimm nd_btt nd_pmem nfit; do
    file=$(find "$unpacked" -path "*/kernel/drivers/*" -name "$module.ko*" | head -1)
    case "$file" in
    *.ko) cp "$file" "$unpacked/guest/$number-$module.ko" ;;
    *.ko.xz) "$busybox" xzcat "$file" >"$unpacked/guest/$number-$module.ko" ;;
    "") cannot "the kernel has no module $module" ;;
    *) cannot "$file is packed in a way that is not known here" ;;
    esac
    number=$((number + 1))
done
# The rest of the kernel is a hundred megabytes.
rm -rf "$unpacked"/lib/modules "$unpacked"/usr/lib/modules "$unpacked"/boot
"$unpacked"/usr/bin/qemu-system-x86_64 --version >/dev/null 2>&1 ||
    LD_LIBRARY_PATH="$unpacked/usr/lib/x86_64-linux-gnu:$unpacked/lib/x86_64-linux-gnu" \
        "$unpacked"/usr/bin/qemu-system-x86_64 --version >/dev/null || cannot "the downloaded QEMU does not start"
touch "$unpacked/complete"
rm -rf "$root"
mv "$unpacked" "$root"
echo "$root"
