/**
 * `mcp` in this process, message by message; `mcp.long.test.ts` has the official client, and processes.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { commandTools } from "../../src/cli/internal/mcpTools.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const initialize = [
  {
    jsonrpc: "2.0",
    id: "initialize",
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "raw", version: "1" } }
  },
  { jsonrpc: "2.0", method: "notifications/initialized" }
]

const toolCall = (id: string | number, name: string, args: unknown) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, arguments: args }
})

/** What is printed when these messages come at once, and the input ends. */
const answersTo = (url: string, messages: ReadonlyArray<unknown>, ...flags: ReadonlyArray<string>) =>
  Effect.map(
    Cli.run(["mcp", ...flags], {
      env: { DATABASE_URL: url },
      input: messages.map((message) => `${JSON.stringify(message)}\n`).join("")
    }),
    ({ exitCode, stderr, stdout }): ReadonlyArray<any> => {
      assert.deepStrictEqual([exitCode, stderr], [0, ""])
      return stdout.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line))
    }
  )

const call = (url: string, name: string, args: unknown = {}, ...flags: ReadonlyArray<string>) =>
  Effect.map(answersTo(url, [...initialize, toolCall("it", name, args)], ...flags), (answers) => {
    const answer = answers.find(({ id }) => id === "it")
    assert.isDefined(answer, name)
    return answer
  })

// -----------------------------------------------------------------------------
// payloads
// -----------------------------------------------------------------------------

/** Every payload has the mark, and says what it is. */
const mark = "private"
const hidden = (what: string) => `${mark}-${what}`

const Work = Activity.make("Work", { payload: Schema.String, success: Schema.String })
const Refuse = Activity.make("Refuse", { payload: Schema.String, error: Schema.String })
const Hang = Activity.make("Hang", { payload: Schema.String })
const Note = KeyValue.make("note", Schema.String)
const Go = Signal.make("Go", { payload: Schema.String })
const Ask = Request.make("Ask", { payload: Schema.String, success: Schema.String })
const Child = Orchestration.make("Child", { payload: Schema.String, success: Schema.String })
const Parent = Orchestration.make("Parent", { payload: Schema.String, success: Schema.String })
const Broken = Orchestration.make("Broken", { payload: Schema.String, error: Schema.String })

const application = (url: string) =>
  Runtime.layer({ orchestrations: [Parent, Child, Broken], activities: [Work, Refuse, Hang] }).pipe(
    Layer.provide([
      Work.toLayer(() => Effect.succeed(hidden("activity-result"))),
      Refuse.toLayer(() => Effect.fail("refused")),
      Hang.toLayer(() => Effect.never),
      Child.toLayer(() => Effect.succeed(hidden("child-output"))),
      Broken.toLayer((input) => Refuse.execute(input).pipe(Effect.asVoid)),
      Parent.toLayer(Effect.fn(function*(input) {
        if (input === hidden("first-input")) {
          return yield* Parent.continueAsNew(hidden("continued-input"))
        }
        yield* Work.execute(hidden("activity-input"))
        yield* Note.set(hidden("value"))
        const { answer } = yield* Ask.take
        yield* answer(hidden("answer"))
        const of = input === hidden("waiting-input") ? "waits" : "ended"
        yield* Child.executeWithId({ instanceId: `${of}-child`, payload: hidden("child-input") })
        yield* Child.startDetached({ instanceId: `${of}-detached`, payload: hidden("detached-input") })
        yield* Go.wait
        if (of === "waits") yield* Hang.execute(hidden("hanging-input")).pipe(Effect.asVoid)
        return hidden("output")
      }))
    ]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provideMerge(Logger.layer([]))
  )

/** Tasks, messages, schedules and their failures, as services write them. */
const rows = `
  INSERT INTO queue_tasks
    (id, name, payload, status, max_attempts, run_at, queue, created_at, updated_at, look_at, ended_at, dead_at, error)
  SELECT
    gen_random_uuid(), 'resize', '"${hidden("task")}"', status, 20, now(), 'tasks', now(), now(),
    CASE WHEN status IN ('Pending', 'Running') THEN now() END,
    CASE WHEN status IN ('Completed', 'Cancelled') THEN now() END,
    CASE WHEN status = 'Dead' THEN now() END,
    CASE WHEN status = 'Dead' THEN '{"_tag":"TimedOut","timeoutMs":5000}' END
  FROM unnest(ARRAY['Pending', 'Running', 'Completed', 'Dead', 'Cancelled']) AS status;
  INSERT INTO queue_messages (queue, payload, created_at, visible_at, lease_token)
  VALUES ('mails', '{"text":"${hidden("message")}"}', now(), now() - interval '3 hours', NULL);
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts)
  VALUES (1000, 'mails', '{"text":"${hidden("dead-letter")}"}', now(), now(), 20, 20);
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at, last_error)
  VALUES ('mails', '{"text":"${hidden("outbox")}"}', now() - interval '3 hours', now() - interval '3 hours', NULL);
  INSERT INTO operator_actions (actor, action, target, details, outcome)
  VALUES ('ada', 'terminate', 'waits', 'out of stock', 'done')`

const filled = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Broken, { instanceId: "broken", payload: hidden("broken-input") })
    yield* Effect.ignore(client.wait(Broken, "broken"))
    yield* client.start(Parent, { instanceId: "ended", payload: hidden("first-input") })
    yield* client.request(Ask, "ended", hidden("question"))
    yield* client.send(Go, "ended", hidden("signal"))
    yield* client.wait(Parent, "ended")
    yield* client.start(Parent, { instanceId: "waits", payload: hidden("waiting-input") })
    yield* client.request(Ask, "waits", hidden("question"))
    yield* client.send(Go, "waits", hidden("signal"))
    yield* client.send(Go, "waits", hidden("untaken-signal"))
    yield* waitUntil(
      Effect.map(
        test.sql("SELECT FROM worker_queue WHERE work_item LIKE '%hanging-input%' AND instance_id = 'waits'"),
        ({ length }) => length === 1
      )
    )
  }).pipe(Effect.provide(application(test.url)), Effect.orDie)
  // No process is left: the signal stays in the queue.
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.send(Go, "waits", hidden("queued-signal"))
    yield* client.start(Parent, { instanceId: "queued", payload: hidden("queued-input") })
  }).pipe(
    Effect.provide(
      Client.layer.pipe(
        Layer.provideMerge(PrismaProvider.layer({ url: test.url })),
        Layer.provideMerge(Logger.layer([]))
      )
    ),
    Effect.orDie
  )
  yield* test.sql(rows)
  return test
})

/** Everything that a tool can be asked about that store. */
const questions: ReadonlyArray<readonly [tool: string, args: object]> = [
  ...commandTools.filter(({ tool }) => tool.name !== "show").map(({ tool }) => [tool.name, {}] as const),
  ...["running", "completed", "failed", "cancelled", "blocked", "paused"].map((status) =>
    ["list", { status }] as const
  ),
  ["list", { order: "id" }],
  ["list", { retrying: true }],
  ["count", { versions: true }],
  ...["ended", "waits", "queued", "broken", "ended-child", "ended-detached", "no-such"].flatMap((id) => [
    ["show", { id, events: 500 }] as const,
    ["explain", { id }] as const
  ]),
  ["show", { id: "ended", execution: 1, events: 500 }],
  ["explain", { status: "failed" }],
  ...["pending", "running", "completed", "dead", "cancelled"].map((status) => ["tasks", { status }] as const)
]

it.layer(PgServer.layer, { excludeTestServices: true })("duroxide-prisma mcp, by message", (it) => {
  it.effect("no tool shows a payload without --payloads, whatever it is asked", () =>
    Effect.gen(function*() {
      const { url } = yield* filled
      const asked = [...initialize, ...questions.map(([tool, args], index) => toolCall(index, tool, args))]
      const answers = yield* answersTo(url, asked)
      for (const [index, [tool, args]] of questions.entries()) {
        const answer = answers.find(({ id }) => id === index)
        assert.strictEqual(answer?.result?.isError ?? false, "id" in args && args.id === "no-such", tool)
        assert.notInclude(JSON.stringify(answer), mark, `${tool} ${JSON.stringify(args)}`)
      }
      // With the flag they are there, so the store has them.
      const all = JSON.stringify(yield* answersTo(url, asked, "--payloads"))
      for (
        const what of [
          "first-input",
          "continued-input",
          "activity-input",
          "activity-result",
          "value",
          "question",
          "answer",
          "child-input",
          "child-output",
          "detached-input",
          "signal",
          "output",
          "task"
        ]
      ) {
        assert.include(all, hidden(what))
      }
      const outputs = (answer: any) => answer.result.structuredContent.answer.instances.map(({ output }: any) => output)
      const shown = yield* call(url, "list", { name: "Parent", status: "completed" }, "--payloads")
      assert.deepStrictEqual(outputs(shown), [`"${hidden("output")}"`])
      assert.deepStrictEqual(outputs(yield* call(url, "list", { name: "Parent", status: "completed" })), [null])
    }))

  it.effect("a parameter that a tool does not have is refused, and the error names those that it has", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      for (const { tool } of commandTools) {
        const id = tool.name === "show" ? { id: "a" } : {}
        const answer = yield* call(url, tool.name, { ...id, unheardOf: 1 })
        const problem: string = answer.error?.message ?? ""
        assert.strictEqual(answer.error?.code, -32_602, `${tool.name}: ${JSON.stringify(answer)}`)
        assert.include(problem, `["unheardOf"]`)
        const names = Object.keys("fields" in tool.parametersSchema ? tool.parametersSchema.fields as object : {})
        assert.include(
          problem,
          names.length === 0 ? `${tool.name} takes no parameters` : `It has: ${names.join(", ")}`
        )
      }
      // Every property that a client reads in the list of tools is one that it may send, and there are no others.
      const [, { result: { tools } }] = yield* answersTo(url, [
        ...initialize,
        { jsonrpc: "2.0", id: "tools", method: "tools/list" }
      ])
      for (const { inputSchema, name } of tools) {
        assert.strictEqual(inputSchema.additionalProperties, false, name)
        const properties = Object.keys(inputSchema.properties ?? {})
        const { tool } = commandTools.find(({ tool }) => tool.name === name)!
        assert.sameMembers(
          properties,
          Object.keys("fields" in tool.parametersSchema ? tool.parametersSchema.fields as object : {})
        )
      }
    }))

  it.effect("two requests with one id: the first is answered, the second refused, and the server continues", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const answers = yield* answersTo(url, [
        ...initialize,
        toolCall(7, "count", {}),
        toolCall(7, "queues", {}),
        toolCall("7", "count", {}),
        { jsonrpc: "2.0", id: 8, method: "ping" }
      ])
      const of = (id: number | string) => answers.filter((answer) => answer.id === id)
      assert.strictEqual(of(7).length, 2)
      assert.deepStrictEqual(of(7).find(({ error }) => error !== undefined).error, {
        code: -32_600,
        message: "the request with the id 7 has no answer yet"
      })
      assert.isArray(of(7).find(({ result }) => result !== undefined).result.structuredContent.answer)
      assert.isArray(of("7")[0].result.structuredContent.answer)
      assert.deepStrictEqual(of(8)[0].result, {})
    }))

  it.effect("the id of a request that was cancelled is free at once, and only the later request is answered", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } }
      const answers = yield* answersTo(url, [
        ...initialize,
        toolCall(7, "doctor", {}),
        cancel,
        toolCall(7, "doctor", {}),
        cancel,
        toolCall(7, "count", {}),
        { ...cancel, params: { requestId: 1 } }
      ])
      const found = answers.filter(({ id }) => id === 7)
      assert.strictEqual(found.length, 1)
      assert.isArray(found[0].result.structuredContent.answer)
    }))

  it.effect("what is not a request, or comes before initialize, gets the error that JSON-RPC has for it", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const ping = { jsonrpc: "2.0", method: "ping" }
      const cases: ReadonlyArray<readonly [message: unknown, id: number | string | null, code: number]> = [
        [{}, null, -32_600],
        [null, null, -32_600],
        [1, null, -32_600],
        [[], null, -32_600],
        [[{ ...ping, id: 1 }], null, -32_600],
        [{ jsonrpc: "2.0", id: 2 }, 2, -32_600],
        [{ jsonrpc: "2.0", id: 3, method: 5 }, 3, -32_600],
        [{ ...ping, id: { a: 1 } }, null, -32_600],
        [{ ...ping, id: null }, null, -32_600]
      ]
      for (const [message, id, code] of cases) {
        for (const before of [[], initialize]) {
          const answers = yield* answersTo(url, [...before, message, { ...ping, id: "then" }])
          const shown = `${JSON.stringify(message)} -> ${JSON.stringify(answers)}`
          assert.deepStrictEqual(
            answers.filter(({ error }) => error !== undefined).map(({ error, id }) => [id, error.code]),
            [[id, code]],
            shown
          )
          assert.deepStrictEqual(answers.find(({ id }) => id === "then")?.result, {}, shown)
        }
      }
      const early = yield* answersTo(url, [{ jsonrpc: "2.0", id: 1, method: "tools/list" }, ...initialize])
      assert.deepStrictEqual(early[0].error, { code: -32_600, message: "the first request must be initialize" })
      assert.strictEqual(early[1].result.serverInfo.name, "duroxide-prisma")
      const wrong = yield* answersTo(url, [
        ...initialize,
        { jsonrpc: "2.0", id: 1, method: "no/such" },
        { jsonrpc: "2.0", id: 2, method: "tools/call" },
        { jsonrpc: "2.0", id: 3, method: "tools/call", params: { name: "status", arguments: "x" } },
        { jsonrpc: "2.0", id: 4, result: {} },
        { jsonrpc: "2.0", method: "no/such" }
      ])
      const codes = new Map(wrong.map(({ error, id }) => [id, error?.code]))
      assert.deepStrictEqual(
        [1, 2, 3].map((id) => codes.get(id)),
        [-32_601, -32_602, -32_602]
      )
      assert.strictEqual(wrong.length, 4)
    }))

  it.effect("after an initialize that was refused, another one is asked for; a later one that is refused changes nothing", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const wrong = (id: number) => ({ jsonrpc: "2.0", id, method: "initialize", params: { protocolVersion: 5 } })
      const list = (id: number) => ({ jsonrpc: "2.0", id, method: "tools/list" })
      const steps = [[wrong(1)], [list(2)], initialize, [wrong(3)], [list(4)]]
      const turns = steps.map(() => {
        let end = () => {}
        return { ended: new Promise<void>((resolve) => (end = resolve)), end: () => end() }
      })
      let answers = 0
      const { stdout } = yield* Cli.run(["mcp"], {
        env: { DATABASE_URL: url },
        onPrint: () => turns[answers++]?.end(),
        pieces: async function*() {
          for (const [index, messages] of steps.entries()) {
            for (const message of messages) yield `${JSON.stringify(message)}\n`
            await turns[index]!.ended
          }
        }
      })
      const codes = stdout.trim().split("\n").map((line) => JSON.parse(line)).map(({ error, id }) => [id, error?.code])
      assert.deepStrictEqual(codes, [[1, -32_602], [2, -32_600], ["initialize", undefined], [3, -32_602], [
        4,
        undefined
      ]])
    }))

  it.effect("a client of the version with arrays of messages gets an array of answers, with its ids", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const [first, second] = initialize
      let isAnswered = () => {}
      const answered = new Promise<void>((resolve) => (isAnswered = resolve))
      const { stdout } = yield* Cli.run(["mcp"], {
        env: { DATABASE_URL: url },
        onPrint: () => isAnswered(),
        pieces: async function*() {
          yield `${JSON.stringify({ ...first, params: { ...first!.params, protocolVersion: "2025-03-26" } })}\n`
          await answered
          yield `${JSON.stringify(second)}\n`
          yield `${
            JSON.stringify([toolCall("a", "count", {}), toolCall("b", "count", {}), toolCall("a", "count", {})])
          }\n`
        }
      })
      const lines = stdout.trim().split("\n").map((line) => JSON.parse(line))
      const answers: ReadonlyArray<any> = lines.find((line) => Array.isArray(line)) ?? []
      assert.sameMembers(answers.map(({ id }: any) => id), ["a", "b"])
      assert.deepInclude(lines.find(({ error }) => error !== undefined), { id: "a" })
    }))
})
