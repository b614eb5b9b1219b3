import { DefaultAzureCredential } from "@azure/identity"
import { assert, it } from "@effect/vitest"
import { Credentials, PrismaProvider } from "duroxide-prisma/prisma"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Docs from "../utils/docs.ts"

const ca = ""

/** The class of `@azure/keyvault-secrets`. */
class SecretClient {
  readonly url: string
  readonly credential: DefaultAzureCredential
  constructor(url: string, credential: DefaultAzureCredential) {
    this.url = url
    this.credential = credential
  }
  getSecret(
    name: string,
    { abortSignal }: { readonly abortSignal: AbortSignal }
  ): Promise<{ readonly value?: string }> {
    return abortSignal.aborted
      ? Promise.reject(new Error("aborted"))
      : Promise.resolve({ value: `${name} of ${this.url}` })
  }
}

class VaultError extends Data.TaggedError("VaultError")<{ readonly cause: unknown }> {}

const vault = new SecretClient("https://orders.vault.azure.net", new DefaultAzureCredential())

const PasswordLive = Credentials.layer({
  password: Effect.map(
    Effect.tryPromise({
      try: (abortSignal) => vault.getSecret("postgres-password", { abortSignal }),
      catch: (cause) => new VaultError({ cause })
    }),
    ({ value = "" }) => Redacted.make(value)
  ),
  timeToLive: "1 hour"
})

const layers = [
  PrismaProvider.layer({ url: "postgresql://orders@db.example.com/app" }).pipe(
    Layer.provide(Credentials.layerFile("/run/secrets/postgres-password"))
  ),
  PrismaProvider.layer({ url: "postgresql://orders-worker@orders.postgres.database.azure.com/app" }).pipe(
    Layer.provide(Credentials.layerEntra())
  ),
  PrismaProvider.layer({
    url: "postgresql://orders@orders.abc.eu-central-1.rds.amazonaws.com/app?sslrootcert=/etc/ssl/rds.pem"
  }).pipe(Layer.provide(Credentials.layerRds())),
  PrismaProvider.layer({ url: "postgresql://orders@10.0.0.4/app", tls: { ca, serverName: "db.example.com" } })
]

const text = Docs.section("docs/postgresql.md", "Credentials")

it("docs/postgresql.md, Credentials: its examples are those here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/credentials.test.ts"))
  for (const { code } of Docs.blocks(text, "ts")) {
    assert.include(here, Docs.withoutIndentation(code.replace(/^import .*\n+/gm, "")))
  }
  assert.isTrue(layers.every(Layer.isLayer))
})

it.effect("docs/postgresql.md, Credentials: the password of the vault is that of the logins", () =>
  Effect.gen(function*() {
    const { password } = yield* Credentials.Credentials
    const text = yield* password({ host: "h", port: 1, user: "u", database: "d" })
    assert.strictEqual(Redacted.value(text), "postgres-password of https://orders.vault.azure.net")
  }).pipe(Effect.provide(PasswordLive)))
