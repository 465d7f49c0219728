#!/usr/bin/env bash
# Makes a Debian package of what `make install` installs. Called by `make deb`, which sets the variables. The same sources and
# SOURCE_DATE_EPOCH give the same package.
set -eu
: "${BUILD:?}" "${VERSION:?}" "${PKG_LIBRARIES:?}"

if ! command -v dpkg-deb > /dev/null; then
    echo 'deb: dpkg-deb is not here; it comes with Debian and its like' >&2
    exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
arch=$(dpkg --print-architecture)
triplet=$(gcc -print-multiarch 2> /dev/null || true)
package=$BUILD/varflash_${VERSION}_$arch.deb

umask 022
"${MAKE:-make}" --no-print-directory BUILD="$BUILD" install DESTDIR="$root" PREFIX=/usr LIBDIR="/usr/lib/${triplet:-.}" \
    ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions > /dev/null
find "$root/usr/share/man" -type f -exec gzip -9n {} +
strip --strip-unneeded "$root"/usr/lib/"${triplet:-.}"/libvarflash.so.*.* "$root/usr/bin/varflash"

# Libraries that are linked and not inside.
depends='libc6 (>= 2.34)'
for library in $PKG_LIBRARIES; do
    case $library in
    -lcjson) depends="$depends, libcjson1" ;;
    -lzstd) depends="$depends, libzstd1" ;;
    -llua5.4) depends="$depends, liblua5.4-0" ;;
    esac
done

mkdir -p "$root/DEBIAN" "$root/usr/share/doc/varflash"
install -m 644 LICENSE "$root/usr/share/doc/varflash/copyright"
cat > "$root/DEBIAN/control" << END
Package: varflash
Version: $VERSION
Architecture: $arch
Maintainer: the varflash authors <varflash@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: $depends
Section: libs
Priority: optional
Description: attention over batches of sequences of different lengths
 Generates, compiles, caches and launches attention kernels for packed batches,
 forward and backward, on CUDA devices and on the CPU: a C library and a command.
 NVRTC, which compiles kernels, is not part of it; kernels built ahead of time
 (varflash build) need none.
END
echo 'activate-noawait ldconfig' > "$root/DEBIAN/triggers"
find "$root" -newermt "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}" -exec \
    touch -h -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" > /dev/null
echo "$package"
