import { assert, it } from "@effect/vitest"
import { Credentials, PrismaProvider } from "duroxide-prisma/prisma"
import * as Layer from "effect/Layer"
import * as Docs from "../utils/docs.ts"

const ca = ""

const layers = [
  PrismaProvider.layer({ url: "postgresql://orders@db.example.com/app" }).pipe(
    Layer.provide(Credentials.layerFile("/run/secrets/postgres-password"))
  ),
  PrismaProvider.layer({ url: "postgresql://orders@10.0.0.4/app", tls: { ca, serverName: "db.example.com" } })
]

const text = Docs.read("docs/credentials.md")

it("docs/credentials.md: its examples are those here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/credentials.test.ts"))
  for (const { code } of Docs.blocks(text, "ts")) {
    assert.include(here, Docs.withoutIndentation(code.replace(/^import .*\n+/gm, "")))
  }
  assert.isTrue(layers.every(Layer.isLayer))
})
