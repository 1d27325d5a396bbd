#!/bin/sh
# A private certificate authority, and one certificate signed by it for all processes of a cluster.
#
#   sh certificates.sh FOLDER NAME-OR-ADDRESS...
#
# Writes ca.pem, ca.key, node.pem and node.key into FOLDER, which must not exist. The names and addresses are those by
# which processes reach one another. ca.key signs further certificates: keep it, and copy it nowhere.
set -eu

if [ "$#" -lt 2 ]; then
    echo "usage: sh certificates.sh FOLDER NAME-OR-ADDRESS..." >&2
    exit 2
fi
folder=$1
shift
names=""
for each in "$@"; do
    case $each in
        *[!A-Za-z0-9.:_-]* | "" | -*)
            echo "certificates.sh: '$each' is no name or address; give such as scheduler, node1.example.org or 10.0.0.1" >&2
            exit 2
            ;;
        *:* | *[0-9].*[0-9]) kind=IP ;;
        *) kind=DNS ;;
    esac
    case $each in
        *[!0-9.:A-Fa-f]*) kind=DNS ;;
    esac
    names="$names${names:+,}$kind:$each"
done

umask 077
mkdir "$folder"
cd "$folder"
quiet() {
    openssl "$@" 2>log || {
        cat log >&2
        exit 1
    }
}
quiet req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1825 -subj "/CN=dask cluster authority" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout ca.key -out ca.pem
quiet req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=dask cluster process" -keyout node.key -out node.csr
cat >extensions <<END
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $names
END
quiet x509 -req -in node.csr -CA ca.pem -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days 365 -extfile extensions -out node.pem
rm -f node.csr extensions log
echo "$folder: ca.pem, ca.key, node.pem, node.key; for $names"
