import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, ProgressStream, Runtime } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Docs from "../utils/docs.ts"

// -----------------------------------------------------------------------------
// definitions and programs
// -----------------------------------------------------------------------------

const Tokens = ProgressStream.make("tokens", { chunk: Schema.String })
const Steps = ProgressStream.make("steps", { chunk: Schema.String })

const Pages = ProgressStream.make("pages", { chunk: { page: Schema.Int, rows: Schema.Int } })

const Think = Activity.make("Think", { payload: Schema.String, success: Schema.String })
const Export = Activity.make("Export", { payload: Schema.Int })
const Chat = Orchestration.make("Chat", { payload: Schema.Array(Schema.String) })
const Report = Orchestration.make("Report", { payload: Schema.Int })

/** A model that says two words, one a second. */
const ask = (question: string) =>
  Stream.mapEffect(Stream.make("I ", `say ${question}.`), (word) => Effect.delay(Effect.succeed(word), "1 second"))

const render = (page: number) => Effect.delay(Effect.succeed(10 * page), "1 second")

const ThinkLive = Think.toLayer((question) => Stream.mkString(Stream.tap(ask(question), Tokens.append)))

const ChatLive = Chat.toLayer(Effect.fn(function*(questions) {
  for (const question of questions) {
    yield* Steps.append(`thinking about ${question}`)
    yield* Think.execute(question)
  }
}))

const ExportLive = Export.toLayer(Effect.fn(function*(pages) {
  const done = yield* Pages.resume
  for (let page = (done.at(-1)?.page ?? -1) + 1; page < pages; page++) {
    yield* Pages.append({ page, rows: yield* render(page) })
  }
}))

const watch = (instanceId: string, show: (text: string) => Effect.Effect<void>) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    let text = ""
    yield* Stream.runForEach(client.readStream(Tokens, instanceId), (entry) => {
      text = ProgressStream.startsOver(entry) ? entry.chunk : text + entry.chunk
      return show(text)
    })
  })

const readOn = (instanceId: string, offset: number) =>
  Effect.map(Client.Client, (client) => client.readStream(Tokens, instanceId, { from: offset + 1 }))

// -----------------------------------------------------------------------------
// tests
// -----------------------------------------------------------------------------

const virtually = Effect.provide([
  TestRuntime.layer(
    Runtime.layer({ orchestrations: [Chat, Report], activities: [Think, Export] }).pipe(
      Layer.provide([ChatLive, ThinkLive, ExportLive, Report.toLayer(Export.execute)])
    )
  ),
  Logger.layer([])
])

describe("docs/streams.md", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/streams.test.ts"))
    const examples = Docs.blocks(Docs.read("docs/streams.md"), "ts")
    assert.lengthOf(examples, 6)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it("its table has the defaults", () => {
    const make = (options: ProgressStream.Options) => ProgressStream.make("s", { chunk: Schema.String, ...options })
    assert.throws(() => make({ keepBytes: 65_535 }), "from 65536")
    assert.throws(() => make({ maxChunkBytes: 5_000_000 }), "to 1048576")
    assert.throws(() => make({ maxChunkBytes: 100_000, keepBytes: 99_999 }), "from 100000")
  })

  it.effect("a reader drops an aborted try, and another one reads on", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Chat, { instanceId: "chat", payload: ["one", "two"] })
      yield* TestRuntime.advance("1500 millis")
      yield* TestRuntime.crash
      const shown: Array<string> = []
      yield* watch("chat", (text) => Effect.sync(() => void shown.push(text)))
      assert.deepStrictEqual(shown, ["I ", "I ", "I say one.", "I ", "I say two."])
      const rest = yield* Stream.runCollect(yield* readOn("chat", 2))
      assert.deepStrictEqual(rest.map(({ chunk }) => chunk), ["I ", "say two."])
      const steps = yield* Stream.runCollect(client.readStream(Steps, "chat"))
      assert.deepStrictEqual(steps.map(({ chunk }) => chunk), ["thinking about one", "thinking about two"])
    }).pipe(virtually))

  it.effect("a handler that resumes appends each chunk once", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Report, { instanceId: "report", payload: 4 })
      yield* TestRuntime.advance("2500 millis")
      yield* TestRuntime.crash
      const pages = yield* Stream.runCollect(client.readStream(Pages, "report"))
      assert.deepStrictEqual(pages.map(({ chunk }) => chunk), [0, 1, 2, 3].map((page) => ({ page, rows: 10 * page })))
    }).pipe(virtually))
})
