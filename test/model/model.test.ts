import { assert, describe, it } from "@effect/vitest"
import { ErrorDetails, Event, WorkItem } from "duroxide-prisma/provider"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { readdirSync, readFileSync } from "node:fs"

interface Fixture {
  readonly scenario: string
  readonly history: ReadonlyArray<{ readonly event_data: string }>
  readonly work_items: ReadonlyArray<{ readonly work_item: string }>
}

const folder = new URL("../recordings/duroxide/", import.meta.url)
const fixtures = readdirSync(folder)
  .filter((name) => name.endsWith(".json") && !name.startsWith("_"))
  .map((name) => JSON.parse(readFileSync(new URL(name, folder), "utf8")) as Fixture)

const sortKeys = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map(sortKeys)
    : typeof value === "object" && value !== null
    ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([k, v]) => [k, sortKeys(v)]))
    : value

/** What the fields of a value may hold by mistake. */
const oddities = [undefined, null, true, -1, -0, 1.5, NaN, 2 ** 53, 7, "", "\0 \ud800 é \"\\", {}, [], [["a", "b"]], [[
  "a"
]]]

/** The value, and values with one field that is odd or missing. */
const variations = (value: object): ReadonlyArray<object> => [
  { ...value, unknown: 1 },
  ...Object.keys(value).filter((key) => key !== "_tag").flatMap((key) => {
    const { [key]: _, ...without } = value as Record<string, unknown>
    return [without, ...oddities.map((odd) => ({ ...value, [key]: odd }))]
  })
]

const outcome = (encode: () => string) => {
  try {
    return encode()
  } catch {
    return "refused"
  }
}

/** Compares two ways to encode these values and their variations; returns how many texts and refusals there were. */
const compare = <A extends object>(
  values: ReadonlyArray<A>,
  encode: (value: A) => string,
  schema: Schema.Codec<A, unknown>
) => {
  const bySchema = Schema.encodeSync(schema)
  const counts = { texts: 0, refusals: 0 }
  for (const value of values.flatMap((value) => variations(value) as ReadonlyArray<A>)) {
    const expected = outcome(() => JSON.stringify(bySchema(value)))
    assert.strictEqual(outcome(() => encode(value)), expected)
    counts[expected === "refused" ? "refusals" : "texts"]++
  }
  return counts
}

/** One of each kind, with each set of fields. */
const distinct = <A extends object>(values: ReadonlyArray<A & { readonly _tag: string }>) => [
  ...new Map(values.map((value) => [[value._tag, ...Object.keys(value)].join(), value])).values()
]

describe("Event", () => {
  it("encode: writes the JSON of the Schema, and refuses what it refuses", () => {
    const events = fixtures.flatMap(({ history }) =>
      history.flatMap(({ event_data }) => Option.toArray(Result.getSuccess(Event.decode(event_data))))
    )
    const { refusals, texts } = compare(distinct(events), Event.encode, Event.Event)
    assert.isAbove(texts, 200)
    assert.isAbove(refusals, 200)
  })

  it("decode: every event a Rust runtime wrote comes back byte for byte", () => {
    let events = 0
    const unreadable: Array<string> = []
    for (const { history } of fixtures) {
      for (const row of history) {
        const event = Event.decode(row.event_data)
        if (Result.isFailure(event)) {
          unreadable.push(event.failure.problem)
          continue
        }
        assert.strictEqual(Event.encode(event.success), row.event_data)
        events++
      }
    }
    // The only text that was edited by hand when the recordings were made.
    assert.deepStrictEqual(unreadable, ["unknown Event variant \"FutureEvent\""])
    assert.strictEqual(events, 516)
  })

  it("decode: knows every kind of event, in every set of fields seen", () => {
    const { kinds } = JSON.parse(readFileSync(new URL("_event-kinds.json", folder), "utf8")) as {
      readonly kinds: Record<string, ReadonlyArray<{ readonly event_data: string }>>
    }
    for (const [kind, examples] of Object.entries(kinds)) {
      for (const { event_data } of examples) {
        const event = Result.getOrThrow(Event.decode(event_data))
        assert.strictEqual(event._tag, kind)
        assert.strictEqual(Event.encode(event), event_data)
      }
    }
    assert.strictEqual(Object.keys(kinds).length, 26)
  })

  const timer = {
    event_id: 2,
    source_event_id: null,
    instance_id: "a",
    execution_id: 1,
    timestamp_ms: 5,
    duroxide_version: "0.1.30",
    type: "TimerCreated",
    fire_at_ms: 9
  }

  it("decode: ignores unknown keys", () => {
    const event = Result.getOrThrow(Event.decode(JSON.stringify({ ...timer, later: { added: true } })))
    assert.strictEqual(Event.encode(event), JSON.stringify(timer))
  })

  it("decode: takes a missing key and null for the same thing", () => {
    const { source_event_id: _, ...without } = timer
    const scheduled = { ...timer, type: "ActivityScheduled", name: "A", input: "1", session_id: null }
    assert.strictEqual(Result.getOrThrow(Event.decode(JSON.stringify(without))).sourceEventId, null)
    assert.notProperty(Result.getOrThrow(Event.decode(JSON.stringify(scheduled))), "sessionId")
  })

  it("decode: names the problem without showing the payload", () => {
    const problem = (text: string) => Result.getOrThrow(Result.flip(Event.decode(text))).problem
    assert.strictEqual(problem("{"), "Event is not JSON")
    assert.strictEqual(problem("[]"), "Event is not a JSON object")
    assert.strictEqual(problem(`{"garbage":true}`), "unknown Event variant (none)")
    assert.strictEqual(problem(JSON.stringify({ ...timer, type: "Nope" })), `unknown Event variant "Nope"`)
    for (const fire_at_ms of [1.5, -1, 2 ** 53, "secret"]) {
      const text = problem(JSON.stringify({ ...timer, fire_at_ms }))
      assert.match(text, /^Event TimerCreated: Expected .* at \["fire_at_ms"\]$/)
      assert.notInclude(text, "secret")
    }
  })
})

describe("WorkItem", () => {
  it("decode: every message a Rust runtime wrote comes back as the same JSON", () => {
    let compact = 0
    let items = 0
    for (const { work_items } of fixtures) {
      for (const row of work_items) {
        const text = WorkItem.encode(Result.getOrThrow(WorkItem.decode(row.work_item)))
        assert.deepStrictEqual(sortKeys(JSON.parse(text)), sortKeys(JSON.parse(row.work_item)))
        items++
        // Rows written through `jsonb` have a space after every colon; the compact ones must come back byte for byte.
        if (!/^\{"\w+": /.test(row.work_item)) {
          assert.strictEqual(text, row.work_item)
          compact++
        }
      }
    }
    assert.strictEqual(items, 302)
    assert.isAtLeast(compact, 100)
  })

  it("encode: writes the JSON of the Schema, and refuses what it refuses", () => {
    const items = fixtures.flatMap(({ work_items }) =>
      work_items.map(({ work_item }) => Result.getOrThrow(WorkItem.decode(work_item)))
    )
    const { refusals, texts } = compare(distinct(items), WorkItem.encode, WorkItem.WorkItem)
    assert.isAbove(texts, 50)
    assert.isAbove(refusals, 50)
  })

  it("decode: an unknown variant is named", () => {
    const result = WorkItem.decode(`{"Teleport":{"instance":"a"}}`)
    assert.strictEqual(Result.getOrThrow(Result.flip(result)).problem, `unknown WorkItem variant "Teleport"`)
  })

  it("target: notices of children go to the parent", () => {
    assert.strictEqual(
      WorkItem.target({
        _tag: "SubOrchCompleted",
        parentInstance: "p",
        parentExecutionId: 1,
        parentId: 2,
        result: "1"
      }),
      "p"
    )
    assert.strictEqual(WorkItem.target({ _tag: "CancelInstance", instance: "i", reason: "" }), "i")
  })
})

describe("ErrorDetails", () => {
  it("display: does not call an invalid program nondeterministic", () => {
    assert.strictEqual(ErrorDetails.display(ErrorDetails.invalidProgram("x")), "invalid program: x")
  })

  it("display: gives the same text as a Rust client", () => {
    const { display } = ErrorDetails
    assert.strictEqual(display(ErrorDetails.cancelled("too late")), "canceled: too late")
    assert.strictEqual(display(ErrorDetails.nondeterminism("x")), "nondeterministic: x")
    assert.strictEqual(display(ErrorDetails.application("Panicked", "boom")), "orchestration panicked: boom")
    assert.strictEqual(display(ErrorDetails.application("ActivityFailed", "boom")), "boom")
    assert.strictEqual(
      display({ _tag: "Infrastructure", operation: "ack", message: "down", retryable: true }),
      "infrastructure:ack: down"
    )
    assert.strictEqual(
      display({
        _tag: "Poison",
        attemptCount: 11,
        maxAttempts: 10,
        messageType: { Activity: { instance: "i", execution_id: 1, activity_name: "A", activity_id: 2 } },
        message: "{}"
      }),
      "poison: activity A#2 exceeded 11 attempts (max 10)"
    )
  })
})
