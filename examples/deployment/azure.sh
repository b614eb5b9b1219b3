#!/usr/bin/env bash
# Creates an Azure Database for PostgreSQL (Flexible Server) for duroxide-prisma, in a subnet of your network, and sets its
# parameters. Needs Azure CLI 2.86 or newer, logged in (`az login`). It can be run again: what exists is left, parameters are set anew.
#
#     RESOURCE_GROUP=app LOCATION=westeurope SERVER=app-db VNET=app-net SUBNET=postgres SIZE=small ./azure.sh
#
# SIZE is development, small, medium or large; docs/deployment.md says for what.
set -euo pipefail

: "${RESOURCE_GROUP:?the resource group, which exists}"
: "${LOCATION:?for example westeurope}"
: "${SERVER:?the name of the server, unique in Azure}"
: "${VNET:?the virtual network of the workers, in the resource group}"
: "${SUBNET:?a subnet of it, which exists and which only the server uses}"
DATABASE=${DATABASE:-app}
VERSION=${VERSION:-17}

case "${SIZE:-small}" in
  development) tier=Burstable sku=Standard_B1ms storage=32 standby=Disabled ;;
  small) tier=GeneralPurpose sku=Standard_D2ds_v5 storage=128 standby=Enabled ;;
  medium) tier=GeneralPurpose sku=Standard_D4ds_v5 storage=256 standby=Enabled ;;
  large) tier=MemoryOptimized sku=Standard_E8ds_v5 storage=1024 standby=Enabled ;;
  *) echo "SIZE is development, small, medium or large, not ${SIZE}" >&2; exit 2 ;;
esac

server=(--resource-group "$RESOURCE_GROUP" --server-name "$SERVER")

if ! az postgres flexible-server show --resource-group "$RESOURCE_GROUP" --name "$SERVER" --output none 2>/dev/null; then
  # What the server needs of the network: a subnet that is delegated to it, and a zone for its name.
  zone="$SERVER.private.postgres.database.azure.com"
  az network vnet subnet update --output none --resource-group "$RESOURCE_GROUP" --vnet-name "$VNET" --name "$SUBNET" \
    --delegations Microsoft.DBforPostgreSQL/flexibleServers
  az network private-dns zone show --output none --resource-group "$RESOURCE_GROUP" --name "$zone" 2>/dev/null ||
    az network private-dns zone create --output none --resource-group "$RESOURCE_GROUP" --name "$zone"
  link=(--output none --resource-group "$RESOURCE_GROUP" --zone-name "$zone" --name "$VNET")
  az network private-dns link vnet show "${link[@]}" 2>/dev/null ||
    az network private-dns link vnet create "${link[@]}" --virtual-network "$VNET" --registration-enabled false
  # Logins by Microsoft Entra only: no password exists that could leak.
  az postgres flexible-server create --yes --output none \
    --resource-group "$RESOURCE_GROUP" --name "$SERVER" --location "$LOCATION" --version "$VERSION" \
    --tier "$tier" --sku-name "$sku" --storage-size "$storage" --storage-auto-grow Enabled \
    --zonal-resiliency "$standby" --backup-retention 14 \
    --vnet "$VNET" --subnet "$SUBNET" --private-dns-zone "$zone" \
    --microsoft-entra-auth Enabled --password-auth Disabled
fi

# Without an administrator, no login is possible. Apart from the server: the script may have failed between the two.
administrators=$(az postgres flexible-server microsoft-entra-admin list "${server[@]}" --query "length(@)" --output tsv)
if [ "$administrators" -eq 0 ]; then
  az postgres flexible-server microsoft-entra-admin create --output none "${server[@]}" \
    --display-name "$(az ad signed-in-user show --query userPrincipalName --output tsv)" \
    --object-id "$(az ad signed-in-user show --query id --output tsv)" --type User
fi

az postgres flexible-server db show --output none "${server[@]}" --name "$DATABASE" 2>/dev/null ||
  az postgres flexible-server db create --output none "${server[@]}" --name "$DATABASE"

set_parameter() {
  az postgres flexible-server parameter set --output none "${server[@]}" --name "$1" --value "$2"
}

# A managed server has no ALTER SYSTEM. These need no restart.
set_parameter autovacuum_naptime 15                          # seconds: dead rows of the queues slow claims
set_parameter idle_in_transaction_session_timeout 600000     # ms: such a transaction keeps dead rows
set_parameter log_lock_waits on
set_parameter log_min_duration_statement 1000                # ms
set_parameter track_io_timing on
set_parameter wal_compression on
set_parameter random_page_cost 1.1                           # the storage has no seeks
set_parameter require_secure_transport on

# PgBouncer, which is built in, on port 6432. Not on Burstable servers.
if [ "$tier" != Burstable ]; then
  set_parameter pgbouncer.enabled true
  set_parameter pgbouncer.pool_mode transaction
  set_parameter pgbouncer.max_prepared_statements 0          # give our URL pgbouncer=true
fi

az postgres flexible-server show --resource-group "$RESOURCE_GROUP" --name "$SERVER" \
  --query "{host: fullyQualifiedDomainName, state: state, sku: sku.name, version: version}" --output table
