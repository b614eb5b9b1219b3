/**
 * A store is reached by a URL or by a pool of the application, never both.
 */
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Pool } from "pg"

const pool = new Pool()
const url = "postgresql://localhost/app"

PrismaProvider.layer({ pool, schema: "duroxide", directUrl: url })
PrismaProvider.layerDatabase({ pool, longPolling: { enabled: false } })
PrismaProvider.layer({ url, maxConnections: 2 })

// @ts-expect-error: either
PrismaProvider.layer({ url, pool })
// @ts-expect-error: one of them
PrismaProvider.layer({ schema: "duroxide" })
// @ts-expect-error: how many there are is decided where the pool is made
PrismaProvider.layer({ pool, maxConnections: 2 })
// @ts-expect-error: it has no connections
PrismaProvider.layer({ pool: {} })
