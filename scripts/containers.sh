#!/usr/bin/env bash
# Runs the images of the examples on the container engine of this machine: Lite with PostgreSQL and MinIO, then workers of an
# application that has the packed package among its dependencies. Needs docker with Compose, and reaches registries. CI runs it
# every night. `scripts/containers.sh lite` and `scripts/containers.sh worker` run one of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lite() {
  local compose=(docker compose -f examples/lite/compose.yaml) code=0
  "${compose[@]}" up --build --detach && "${compose[@]}" wait client || code=$?
  if [ "$code" = 0 ]; then "${compose[@]}" logs client; else "${compose[@]}" logs; fi
  "${compose[@]}" down --volumes
  return "$code"
}

worker() {
  local app compose code=0
  app=$(mktemp -d)
  npm pack --silent --pack-destination "$app" > /dev/null
  mv "$app"/duroxide-prisma-*.tgz "$app/duroxide-prisma.tgz"
  cp examples/deployment/{compose.yaml,Dockerfile.dockerignore,worker.ts} "$app"
  # An application has the package from a registry; this one from the file beside package.json.
  sed 's/^COPY package.json package-lock.json/COPY duroxide-prisma.tgz package.json package-lock.json/' \
    examples/deployment/Dockerfile > "$app/Dockerfile"
  version() { node -p "require('./package.json').devDependencies['$1']"; }
  local packages=("effect@$(version effect)" "typescript@$(version typescript)" "@types/node@$(version @types/node)")
  (
    cd "$app"
    echo '{ "private": true, "type": "module", "scripts": { "build": "tsc" } }' > package.json
    cat > tsconfig.json <<'JSON'
{
  "compilerOptions": {
    "module": "nodenext", "target": "es2024", "strict": true, "skipLibCheck": true, "types": ["node"], "outDir": "dist"
  },
  "files": ["worker.ts"]
}
JSON
    npm install --no-audit --no-fund ./duroxide-prisma.tgz "${packages[@]}"
  )
  compose=(docker compose -f "$app/compose.yaml")
  "${compose[@]}" up --build --detach worker || code=$?
  healthy() { [ "$("${compose[@]}" ps --format '{{.Health}}' worker | grep --count --line-regexp healthy)" = 2 ]; }
  # Not --wait, which takes the migration that has ended for a failure.
  for _ in {1..60}; do healthy && break || sleep 2; done
  healthy || code=1
  "${compose[@]}" stop worker
  # One line for each worker: 0, unless it did not end by itself on SIGTERM.
  [ "$("${compose[@]}" ps --all --format '{{.ExitCode}}' worker | sort -u)" = 0 ] || code=1
  [ "$code" = 0 ] || "${compose[@]}" logs
  "${compose[@]}" down --volumes
  rm -r "$app"
  return "$code"
}

for part in "${@:-lite worker}"; do
  for one in $part; do
    case "$one" in
      lite | worker) echo "=== $one" && "$one" ;;
      *) echo "usage: scripts/containers.sh [lite] [worker]" >&2 && exit 2 ;;
    esac
  done
done
