import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import * as Channels from "../../src/prisma/internal/channels.ts"
import { Hint } from "../../src/waking/Notifier.ts"
import type { Received } from "../../src/waking/Notifier.ts"

const bytes = (text: string) => new TextEncoder().encode(text).length

const channels = Channels.channelsOf("app")
const sender = Channels.makeSender()

const queue = fc.constantFrom("orchestrator" as const, "worker" as const)
const ms = fc.nat({ max: Number.MAX_SAFE_INTEGER })
const fingerprint = fc.stringMatching(/^[0-9a-f]{8}$/)
const id = fc.stringMatching(/^[0-9a-f]{16}$/)
const textFingerprint = fc.stringMatching(/^[0-9a-f]{32}$/)
const hint = fc.oneof(
  fc.record({ queue, visibleAtMs: ms }).map((fields) => Hint.Work(fields)),
  fc.record({ queue, visibleAtMs: ms, only: fc.record({ id, fingerprint: textFingerprint }) }).map((fields) =>
    Hint.Work(fields)
  ),
  fc.record({ queue, ids: fc.array(id, { minLength: 1, maxLength: 400 }) }).map((fields) => Hint.Taken(fields)),
  fc.record({ queue, untilMs: fc.option(fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })) }).map((fields) =>
    Hint.Locks(fields)
  ),
  fc.array(fingerprint, { minLength: 1, maxLength: 800 }).map((fingerprints) => Hint.Changed({ fingerprints })),
  fc.constant(Hint.Waiting()),
  fc.constant(Hint.Sampled()),
  fc.constant(Hint.Paused()),
  fc.constant(Hint.Hello()),
  queue.map((queue) => Hint.Serves({ queue }))
)

const received = (hints: ReadonlyArray<Hint>) =>
  Channels.encode(channels, sender, hints).flatMap((sent) => Channels.decode(channels, sent))

describe("channelsOf", () => {
  it("short names stay readable", () => {
    assert.deepStrictEqual(channels, {
      orchestrator: "app_orch_work",
      worker: "app_worker_work",
      changes: "app_changes",
      topics: "app_queues"
    })
  })

  it("a name of more than 63 bytes is replaced by a hash, as the triggers do it", () => {
    const long = "ä".repeat(31) // 62 bytes
    // The first 32 digits of what `printf ä…ä | sha256sum` prints.
    const hash = "af5af88292e4900c4f76a30cc8027438"
    assert.deepStrictEqual(Channels.channelsOf(long), {
      orchestrator: `dx_${hash}_orch_work`,
      worker: `dx_${hash}_worker_work`,
      changes: `dx_${hash}_changes`,
      topics: `dx_${hash}_queues`
    })
  })

  it("each name is replaced only if it does not fit itself", () => {
    const { changes, orchestrator, worker } = Channels.channelsOf("s".repeat(53))
    assert.strictEqual(orchestrator, `${"s".repeat(53)}_orch_work`)
    assert.match(worker, /^dx_[0-9a-f]{32}_worker_work$/)
    assert.strictEqual(changes, `${"s".repeat(53)}_changes`)
  })

  it("every schema has names of its own, of at most 63 bytes", () => {
    const schema = fc.string({ unit: "grapheme", minLength: 1 }).filter((name) => bytes(name) <= 63)
    fc.assert(fc.property(schema, schema, (one, other) => {
      const names = Object.values(Channels.channelsOf(one))
      for (const name of names) assert.isAtMost(bytes(name), 63)
      assert.strictEqual(new Set(names).size, 4)
      if (one === other) return
      for (const name of Object.values(Channels.channelsOf(other))) assert.notInclude(names, name)
    }))
  })
})

describe("encode and decode", () => {
  it("the formats", () => {
    const a = "abcdefghijkl"
    const hints = [
      Hint.Work({ queue: "orchestrator", visibleAtMs: 1_700_000_000_000 }),
      Hint.Work({ queue: "worker", visibleAtMs: 0, only: { id: "0123456789abcdef", fingerprint: "f".repeat(32) } }),
      Hint.Taken({ queue: "worker", ids: ["0123456789abcdef", "fedcba9876543210"] }),
      Hint.Locks({ queue: "worker", untilMs: 1_700_000_030_000 }),
      Hint.Locks({ queue: "worker", untilMs: null }),
      Hint.Changed({ fingerprints: ["01234567", "89abcdef"] }),
      Hint.Waiting(),
      Hint.Hello()
    ]
    assert.deepStrictEqual(Channels.encode(channels, a, hints), [
      { channel: "app_orch_work", payload: `1700000000000 ${a}` },
      { channel: "app_worker_work", payload: `0 ${a} 0123456789abcdef ${"f".repeat(32)}` },
      { channel: "app_worker_work", payload: `0 ${a} taken 0123456789abcdef fedcba9876543210` },
      { channel: "app_worker_work", payload: `1700000030000 ${a} locks` },
      { channel: "app_worker_work", payload: `0 ${a} locks` },
      { channel: "app_changes", payload: `${a} changed 01234567 89abcdef` },
      { channel: "app_changes", payload: `${a} waiting` },
      { channel: "app_changes", payload: `${a} hello` }
    ])
  })

  it("what triggers send has no sender", () => {
    const cases: ReadonlyArray<readonly [string, string, Received]> = [
      ["app_orch_work", "1700000000000", {
        hint: Hint.Work({ queue: "orchestrator", visibleAtMs: 1_700_000_000_000 }),
        sender: null
      }],
      ["app_worker_work", "0", { hint: Hint.Work({ queue: "worker", visibleAtMs: 0 }), sender: null }],
      ["app_queues", "m mails @1700000000000", {
        hint: Hint.Topic({ topic: "m mails", atMs: 1_700_000_000_000 }),
        sender: null
      }],
      ["app_changes", "- changed 01234567", { hint: Hint.Changed({ fingerprints: ["01234567"] }), sender: null }]
    ]
    for (const [channel, payload, expected] of cases) {
      assert.deepStrictEqual(Channels.decode(channels, { channel, payload }), [expected])
    }
  })

  it("hints arrive as they were sent", () => {
    fc.assert(fc.property(fc.array(hint, { maxLength: 10 }), (hints) => {
      assert.deepStrictEqual(received(hints), hints.map((hint) => ({ hint, sender })))
    }))
  })

  it("any number of fingerprints arrives, in payloads that PostgreSQL takes", () => {
    for (const count of [0, 1, 800, 801, 5000]) {
      const fingerprints = Array.from({ length: count }, (_, i) => i.toString(16).padStart(8, "0"))
      const sent = Channels.encode(channels, sender, [Hint.Changed({ fingerprints })])
      for (const { payload } of sent) assert.isBelow(bytes(payload), 7900)
      assert.deepStrictEqual(
        sent.flatMap((one) => Channels.decode(channels, one))
          .flatMap(({ hint }) => Hint.$is("Changed")(hint) ? hint.fingerprints : []),
        fingerprints
      )
    }
  })

  it("hints about topics share payloads that PostgreSQL takes", () => {
    for (const count of [0, 1, 7, 5000]) {
      const hints = Array.from(
        { length: count },
        (_, i) => Hint.Topic({ topic: `t 00000000-0000-4000-8000-${i.toString(16).padStart(12, "0")}`, atMs: i % 2 })
      )
      const sent = Channels.encode(channels, sender, hints)
      assert.isAtMost(sent.length, Math.ceil(count / 100))
      for (const { payload } of sent) assert.isBelow(bytes(payload), 7900)
      assert.deepStrictEqual(received(hints), hints.map((hint) => ({ hint, sender })))
    }
  })

  it("times between two milliseconds, and out of all bounds, can be sent", () => {
    const at = (visibleAtMs: number) => Hint.Work({ queue: "worker", visibleAtMs })
    const cases = [[0.1, 1], [-5, 0], [1e300, Number.MAX_SAFE_INTEGER], [Infinity, Number.MAX_SAFE_INTEGER]] as const
    for (const [sent, arrives] of cases) assert.deepStrictEqual(received([at(sent)]), [{ hint: at(arrives), sender }])
  })

  it("what cannot be read is ignored", () => {
    const payloads = [
      "",
      " ",
      "now",
      "-1",
      "1.5",
      "1e3",
      "99999999999999999",
      "9999999999999999", // above 2^53
      "1700000000000 ",
      "1700000000000 me",
      `1700000000000 ${sender} more`,
      `1700000000000 ${sender} locks and more`,
      `1700000000000\n${sender}`,
      "1700000000000\n",
      `${sender} changed`,
      `${sender} changed 0123456`,
      `${sender} changed 01234567  01234567`,
      `${sender} waiting now`,
      `${sender} echo`,
      "me waiting",
      "hello"
    ]
    for (const channel of Object.values(channels)) {
      for (const payload of payloads) {
        assert.deepStrictEqual(Channels.decode(channels, { channel, payload }), [], `${channel}: ${payload}`)
      }
    }
    const elsewhere = { channel: "other_orch_work", payload: "1700000000000" }
    assert.deepStrictEqual(Channels.decode(channels, elsewhere), [])
    fc.assert(fc.property(fc.constantFrom(...Object.values(channels)), fc.string(), (channel, payload) => {
      Channels.decode(channels, { channel, payload }) // does not throw
    }))
  })

  it("an echo cannot be read as a hint", () => {
    for (const channel of Object.values(channels)) {
      assert.deepStrictEqual(Channels.decode(channels, Channels.echoOn(channel, sender)), [])
    }
  })
})

describe("makeSender", () => {
  it("has twelve characters, others every time", () => {
    const senders = Array.from({ length: 100 }, Channels.makeSender)
    for (const sender of senders) assert.match(sender, /^[0-9a-z]{12}$/)
    assert.strictEqual(new Set(senders).size, 100)
  })
})
