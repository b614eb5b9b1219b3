/**
 * The flags every command has, and the configuration they stand in front of: `--url` before `DATABASE_URL` of the
 * environment, before that of the `.env` file, before the embedded server of the folder.
 */
import * as Flag from "effect/cli/Flag"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as References from "effect/References"
import { readFileSync } from "node:fs"
import { resolve } from "node:path"
import { shellWord } from "../../model/shared/shellWord.ts"
import * as Credentials from "../../prisma/Credentials.ts"
import * as PrismaProvider from "../../prisma/PrismaProvider.ts"
import * as ConnectionUrl from "../../prisma/shared/connectionUrl.ts"
import * as PayloadCodec from "../../provider/PayloadCodec.ts"
import type { ConfigurationInvalid } from "../../provider/ProviderError.ts"
import * as EmbeddedServer from "../../server/shared/embedded.ts"
import { CommandError } from "./failure.ts"
import type { Io } from "./io.ts"
import { Output } from "./Output.ts"

const Url = GlobalFlag.Setting("url")({
  flag: Flag.Redacted("url").pipe(
    Flag.withMetavar("<url>"),
    Flag.withDescription("Database: postgresql://user:password@host:5432/name. Defaults to DATABASE_URL"),
    Flag.optional
  )
})

const SchemaName = GlobalFlag.Setting("schema")({
  flag: Flag.String("schema").pipe(
    Flag.withMetavar("<name>"),
    Flag.withDescription("Schema of the tables. Defaults to DUROXIDE_PG_SCHEMA"),
    Flag.optional
  )
})

const EnvFile = GlobalFlag.Setting("env-file")({
  flag: Flag.String("env-file").pipe(
    Flag.withMetavar("<path>"),
    Flag.withDescription("Variables that the environment does not have. Defaults to .env, if it exists"),
    Flag.optional
  )
})

/** Read by `Output.make`, before the parser, so that errors of the parser are JSON as well. */
const Json = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Print one JSON value; on standard error, JSON lines"),
    Flag.withDefault(false)
  )
})

const Verbose = GlobalFlag.Setting("verbose")({
  flag: Flag.Boolean("verbose").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Log what the library does, on standard error"),
    Flag.withDefault(false)
  )
})

const Keys = GlobalFlag.Setting("keys")({
  flag: Flag.String("keys").pipe(
    Flag.withMetavar("<path>"),
    Flag.withDescription("File with the keys of encrypted payloads. Defaults to DUROXIDE_PAYLOAD_KEYS"),
    Flag.optional
  )
})

const Decode = GlobalFlag.Setting("decode")({
  flag: Flag.Boolean("decode").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Show encrypted and compressed payloads in plain text"),
    Flag.withDefault(false)
  )
})

/** Flags of every command, accepted before and after its name. */
export const flags = [Url, SchemaName, EnvFile, Keys, Decode, Json, Verbose] as const

/** The database a command is for. */
export interface Target {
  readonly url: Redacted.Redacted<string>
  /** Leads to the server itself, where `url` leads to a pooler: for migrations and imports. */
  readonly directUrl: Redacted.Redacted<string>
  readonly schema: string
  /** `host:port/database`, fit for messages. */
  readonly address: string
  /** The command that migrates this schema, with the flags given; without the URL, which may have a password. */
  readonly migrateCommand: string
  /** All of the provider's options that variables set. */
  readonly options: PrismaProvider.Options
}

export class Settings extends Context.Service<Settings, {
  /** Fails with `CommandError` or `ConfigError` if no URL is given, or if a variable cannot be used. */
  readonly target: Effect.Effect<Target, CommandError | Config.ConfigError>
  /**
   * What decodes payloads, and encodes what a command sends; undefined without keys. With `--decode`, it fails without.
   */
  readonly payloads: Effect.Effect<PayloadCodec.PayloadCodec["Service"] | undefined, CommandError | Config.ConfigError>
  /** Whether payloads are shown in plain text. */
  readonly decodes: boolean
}>()("duroxide-prisma/cli/Settings") {}

/** The settings, and what they set: the configuration, how connections log in, and which log lines are shown. */
export const layer = (io: Pick<Io, "env" | "folder">) =>
  Layer.mergeAll(
    Layer.effect(Settings, makeSettings),
    Credentials.layerConfig,
    Layer.effect(References.MinimumLogLevel, Effect.map(Verbose, (isVerbose) => isVerbose ? "Info" : "Warn"))
  ).pipe(Layer.provideMerge(Layer.effectContext(makeConfiguration(io))))

// internal

/** The embedded server of the folder, looked for if no database is named. */
class Embedded extends Context.Service<Embedded, EmbeddedServer.Found | undefined>()("duroxide-prisma/cli/Embedded") {}

const makeSettings = Effect.gen(function*() {
  const embedded = yield* Embedded
  const givenUrl = yield* Url
  const givenSchema = yield* SchemaName
  const provider = yield* ConfigProvider.ConfigProvider
  const repeated = [
    ...(Option.isSome(givenUrl) ? ["--url"] : []),
    ...(Option.isSome(yield* EnvFile) ? ["--env-file"] : [])
  ]
  const variable = Option.isSome(givenUrl) ? undefined : "DATABASE_URL"
  const target = Effect.gen(function*() {
    const named = yield* Config.String("DATABASE_URL").pipe(Config.withDefault(""))
    if (named.trim() === "") return yield* unnamed(embedded)
    // Before the configuration is read, which would speak of variables.
    yield* parse(named, "public", variable)
    if (Option.isSome(givenSchema)) {
      yield* parse(named, givenSchema.value, undefined)
    }
    const options = yield* PrismaProvider.environment
    const { address, schema } = yield* parse(options.url, options.schema, variable)
    const url = Redacted.isRedacted(options.url) ? options.url : Redacted.make(options.url)
    const directUrl = options.directUrl ?? url
    if (options.directUrl !== undefined) yield* parse(options.directUrl, options.schema, "DIRECT_URL")
    return {
      url,
      directUrl: Redacted.isRedacted(directUrl) ? directUrl : Redacted.make(directUrl),
      schema,
      address,
      migrateCommand: migrateCommand({ schema: Option.getOrUndefined(givenSchema), repeated }),
      options
    }
  })
  const decodes = yield* Decode
  const payloads = Effect.gen(function*() {
    const keys = yield* Config.String(keysVariable).pipe(Config.withDefault(""))
    if (keys.trim() !== "") {
      const encryption = PayloadCodec.encryption(yield* PayloadCodec.environment)
      // What a command sends is small, and is not compressed: not every process may know how to decompress.
      return PayloadCodec.make([PayloadCodec.compression({ above: Infinity }), encryption])
    }
    return decodes
      ? yield* new CommandError({
        code: "NoKeys",
        message: `--decode needs keys: set ${keysVariable}, or give a file with --keys`,
        exit: "usage"
      })
      : undefined
  })
  return Settings.of({
    target: Effect.provideService(target, ConfigProvider.ConfigProvider, provider),
    payloads: Effect.provideService(payloads, ConfigProvider.ConfigProvider, provider),
    decodes
  })
})

const keysVariable = "DUROXIDE_PAYLOAD_KEYS"

/** What to do without a database. */
const unnamed = (embedded: Embedded["Service"]) => {
  const [code, exit, message] = embedded === undefined || embedded._tag === "Running"
    ? [
      "NoDatabase",
      "usage",
      "no database is named, and none runs embedded in this folder. Set DATABASE_URL, in the environment or in .env, " +
      "or give --url"
    ] as const
    : embedded._tag === "Starting"
    ? [
      "ServerStarting",
      "again",
      `the embedded PostgreSQL in ${embedded.directory} is still starting. Repeat the command`
    ] as const
    : [
      "ServerStopped",
      "database",
      `the embedded PostgreSQL in ${embedded.directory} is stopped: it runs while a process of the application does. ` +
      "Start the application, or name another database with DATABASE_URL or --url"
    ] as const
  return new CommandError({ code, message, exit })
}

const migrateCommand = ({ repeated, schema }: {
  readonly schema: string | undefined
  /** Flags whose values are not shown. */
  readonly repeated: ReadonlyArray<string>
}) =>
  "duroxide-prisma migrate" +
  (schema === undefined ? "" : ` --schema ${shellWord(schema)}`) +
  (repeated.length === 0 ? "" : `, with the same ${repeated.join(" and ")}`)

/** `variable` names where the URL comes from; undefined: the flag. */
const parse = (
  url: string | Redacted.Redacted<string>,
  schema: string | undefined,
  variable: string | undefined
) => Effect.fromResult(ConnectionUrl.check(url, schema)).pipe(Effect.mapError((problem) => refused(problem, variable)))

const refused = ({ _tag, problem }: ConfigurationInvalid, variable?: string) =>
  new CommandError({
    code: _tag,
    message: variable === undefined ? problem : `${variable} cannot be used: ${problem}`,
    exit: "usage"
  })

/**
 * Flags before variables of the environment before those of the file. A variable that is set to nothing hides the
 * file's. The embedded server comes last, as for `DatabaseServer.make`.
 */
const makeConfiguration = Effect.fnUntraced(function*({ env, folder }: Pick<Io, "env" | "folder">) {
  const known = Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => value === undefined ? [] : [[name, value] as const])
  )
  const url = yield* Url
  if (Option.isSome(url)) {
    known.DATABASE_URL = Redacted.value(url.value)
    known.DIRECT_URL = "" // that of another database
  }
  const schema = yield* SchemaName
  if (Option.isSome(schema)) known.DUROXIDE_PG_SCHEMA = schema.value
  const keys = yield* Keys
  if (Option.isSome(keys)) known[keysVariable] = yield* readKeys(folder, keys.value)
  const file = ConfigProvider.fromDotEnvContents(yield* readEnvFile(folder))
  const given = providerOf(known, file)
  const named = yield* Config.String("DATABASE_URL").pipe(Config.withDefault("")).parse(given)
  const embedded = named.trim() === "" ? yield* EmbeddedServer.find(folder) : undefined
  if (embedded?._tag !== "Running") {
    return Context.make(ConfigProvider.ConfigProvider, given).pipe(Context.add(Embedded, embedded))
  }
  const { errorStyle, note } = yield* Output
  yield* note(errorStyle.dim(`using the ${embedded.description}`), { server: embedded.description })
  const provider = providerOf({ ...known, DATABASE_URL: Redacted.value(embedded.url), DIRECT_URL: "" }, file)
  return Context.make(ConfigProvider.ConfigProvider, provider).pipe(Context.add(Embedded, embedded))
})

const providerOf = (env: Record<string, string>, file: ConfigProvider.ConfigProvider) =>
  ConfigProvider.fromEnv({ env, preserveEmptyStrings: true }).pipe(ConfigProvider.orElse(file))

const readEnvFile = Effect.fnUntraced(function*(folder: string) {
  const given = yield* EnvFile
  const path = Option.getOrElse(given, () => ".env")
  return yield* Effect.try({
    try: () => readFileSync(resolve(folder, path), "utf8"),
    catch: (thrown) => (thrown as NodeJS.ErrnoException).code
  }).pipe(
    Effect.catch((code) =>
      Option.isNone(given) && code === "ENOENT" ? Effect.succeed("") : Effect.fail(
        new CommandError({
          code: "EnvFileUnreadable",
          message: `the file ${path} cannot be read (${code}). Correct --env-file, or leave it out`,
          exit: "usage"
        })
      )
    )
  )
})

const readKeys = (folder: string, path: string) =>
  Effect.try({
    try: () => {
      const text = readFileSync(resolve(folder, path), "utf8")
      PayloadCodec.parseKeys(text)
      return text
    },
    catch: (thrown) => {
      const problem = thrown instanceof RangeError ? thrown.message : (thrown as NodeJS.ErrnoException).code
      return new CommandError({
        code: "KeysUnreadable",
        message: `the keys in ${path} cannot be read (${problem}). Correct --keys, or leave it out`,
        exit: "usage"
      })
    }
  })
