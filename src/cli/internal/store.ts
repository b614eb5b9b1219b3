/**
 * The store of the target, opened for a command: a few connections, no migration; it listens for a command that stays.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import { revealed } from "../../operating/payloads.ts"
import { SchemaBehind } from "../../prisma/MigrationError.ts"
import * as Migrator from "../../prisma/Migrator.ts"
import * as PrismaProvider from "../../prisma/PrismaProvider.ts"
import * as DirectSession from "../../prisma/shared/directSession.ts"
import { Admin } from "../../provider/Admin.ts"
import { PayloadCodec } from "../../provider/PayloadCodec.ts"
import { reveal } from "../../provider/shared/revealing.ts"
import { behind, CommandError } from "./failure.ts"
import { Settings } from "./settings.ts"

/** `Migrator.verify` of the target. */
export const verify = Effect.fnUntraced(function*(options?: Pick<Migrator.Options, "allowAhead">) {
  const { directUrl: url, schema } = yield* (yield* Settings).target
  yield* Effect.catch(Migrator.verify({ url, schema, ...options }), explained)
})

const layerOf = ({ allowAhead, listens = false, sends = false }: {
  readonly allowAhead: boolean
  readonly listens?: boolean
  /** Whether it sends payloads. */
  readonly sends?: boolean
}) =>
  Layer.unwrap(Effect.gen(function*() {
    const { decodes, payloads, target } = yield* Settings
    const { options } = yield* target
    const codec = yield* payloads
    return PrismaProvider.layer({
      ...options,
      migrate: "verify",
      allowAhead,
      maxConnections: 4,
      applicationName: "duroxide-prisma cli",
      longPolling: { ...options.longPolling, ...(!listens && { enabled: false }) }
    }).pipe(
      Layer.catch((error) => Layer.effectContext(explained(error))),
      (store) => decodes && codec !== undefined ? revealing(store, codec) : store,
      // Without `--decode`, what a command shows stays as it is stored.
      Layer.provideMerge(
        codec !== undefined && (sends || decodes)
          ? Layer.succeed(PayloadCodec, codec)
          : Layer.empty as Layer.Layer<PayloadCodec>
      )
    )
  }))

/** For commands that read: tables keep their columns. Fails as `verify` does if the schema lacks migrations. */
export const layer = layerOf({ allowAhead: true })

/** For commands that change something: it fails if a newer release has migrated the schema, too. */
export const layerForChanges = layerOf({ allowAhead: false, sends: true })

/** For a process that stays: it learns of changes as workers do. */
export const layerForDashboard = layerOf({ allowAhead: false, listens: true, sends: true })

/**
 * What to do about a schema that lacks migrations. It says how to apply them; if the schema does not exist, it says
 * that, as the name may be wrong. Other errors stay.
 */
export const explained = Effect.fnUntraced(function*<E>(error: E) {
  if (!(Predicate.hasProperty(error, "reason") && error.reason instanceof SchemaBehind)) {
    return yield* Effect.fail(error)
  }
  const { address, directUrl: url, migrateCommand, schema } = yield* (yield* Settings).target
  const session = yield* DirectSession.connect({ url, schema })
  return yield* (yield* DirectSession.hasSchema(session)) ? behind(error.reason, migrateCommand) : new CommandError({
    code: error.reason._tag,
    message: `schema ${schema} does not exist in ${address}. Correct its name, or create it: ${migrateCommand}`,
    exit: "no"
  })
}, Effect.scoped)

/** What a command reads besides `Admin`, decoded with `--decode`. */
export const shown = Effect.fnUntraced(function*<A>(value: A) {
  const { decodes, payloads } = yield* Settings
  const codec = decodes ? yield* payloads : undefined
  return codec === undefined ? value : yield* reveal(value, codec)
})

// internal

/** What operators read is decoded as well. */
const revealing = <A, E, R>(store: Layer.Layer<A | Admin, E, R>, codec: PayloadCodec["Service"]) =>
  Layer.effect(Admin, Effect.map(Admin, (admin) => revealed(admin, codec))).pipe(Layer.provideMerge(store))
