/**
 * A random model of limits of tasks: calls of the stored functions in any order, at times of the test, and what must
 * hold after each of them. Wake-ups travel through the outbox, by a queue in the same database or by a server of the
 * model, which delivers them in any order.
 *
 * It looks from outside: which tasks have begun and not ended, when they began, and in which order keys came.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as fc from "fast-check"
import type { TestDatabase } from "../../utils/PgServer.ts"

interface Bound {
  readonly concurrency: number | null
  readonly rate: number | null
  readonly rate_ms: number | null
  readonly burst: number | null
}

export type Step =
  | { readonly call: "create"; readonly keys: ReadonlyArray<string>; readonly delayMs: number }
  | { readonly call: "claim"; readonly most: number; readonly leaseMs: number }
  | { readonly call: "complete" | "fail" | "giveBack" | "forget" | "cancel"; readonly which: number }
  | { readonly call: "wait"; readonly ms: number }
  | { readonly call: "limit"; readonly total: Bound | null; readonly eachKey: Bound | null }
  | { readonly call: "lose" | "repeat"; readonly which: number }

const keys = ["a", "b", "c", "d"] as const

const bound = fc.option(
  fc.record({
    concurrency: fc.option(fc.integer({ min: 1, max: 4 })),
    rate: fc.option(fc.integer({ min: 1, max: 2 })),
    rate_ms: fc.constantFrom(50, 200, 1000),
    burst: fc.integer({ min: 1, max: 3 })
  }).map(({ concurrency, rate, ...rest }): Bound => ({
    concurrency,
    ...(rate === null ? { rate, rate_ms: null, burst: null } : { rate, ...rest })
  }))
)

const which = fc.nat(5)

const limit = fc.record({ call: fc.constant("limit" as const), total: bound, eachKey: bound })

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      call: fc.constant("create" as const),
      keys: fc.array(fc.constantFrom(...keys), { minLength: 1, maxLength: 8 }),
      delayMs: fc.constantFrom(0, 0, 0, 400)
    })
  },
  {
    weight: 8,
    arbitrary: fc.record({
      call: fc.constant("claim" as const),
      most: fc.integer({ min: 1, max: 5 }),
      leaseMs: fc.constantFrom(300, 1000, 30_000)
    })
  },
  { weight: 4, arbitrary: fc.record({ call: fc.constant("complete" as const), which }) },
  {
    weight: 4,
    arbitrary: fc.record({
      call: fc.constantFrom("fail" as const, "giveBack" as const, "forget" as const, "cancel" as const),
      which
    })
  },
  { weight: 1, arbitrary: fc.record({ call: fc.constantFrom("lose" as const, "repeat" as const), which }) },
  { weight: 4, arbitrary: fc.record({ call: fc.constant("wait" as const), ms: fc.constantFrom(1, 60, 250, 1100) }) },
  { weight: 1, arbitrary: limit }
)

export interface Run {
  /** Whether the queue is in the same database. */
  readonly isStored: boolean
  /** Whether wake-ups get lost, so that only sweeps find what waits. */
  readonly loses: boolean
  readonly steps: ReadonlyArray<Step>
}

export const runs: fc.Arbitrary<Run> = fc.record({
  isStored: fc.boolean(),
  loses: fc.boolean(),
  steps: fc.tuple(limit, fc.array(step, { minLength: 20, maxLength: 60, size: "max" }))
    .map(([first, others]): ReadonlyArray<Step> => [first, ...others])
})

interface OneTask {
  readonly key: string
  readonly dueMs: number
  /** Attempts begun, by the store. */
  attempt: number
  isRunning: boolean
  /** Its worker lives. */
  isHeld: boolean
}

export const clear = [
  "limits",
  "limit_keys",
  "queue_tasks",
  "queue_task_attempts",
  "queue_outbox",
  "queue_messages",
  "queue_dead"
].map((table) => `DELETE FROM ${table}`).join(";")

export const play = Effect.fnUntraced(function*({ sql }: TestDatabase, { isStored, loses, steps }: Run) {
  const call = <Row>(text: string, ...values: ReadonlyArray<unknown>) => sql<Row>(`SELECT * FROM ${text}`, values)
  let nowMs = Date.UTC(2030, 0, 1)
  const all = new Map<string, OneTask>()
  let limits: { total: Bound | null; eachKey: Bound | null } = { total: null, eachKey: null }
  let begins: Array<{ readonly key: string; readonly atMs: number }> = []
  let claims = 0
  /** Those that the server of the model has. */
  let messages: Array<string> = []
  const passed = new Map<string, Map<string, number>>()

  const waits = (key: string) =>
    [...all.values()].some((one) => one.key === key && !one.isRunning && one.dueMs <= nowMs && one.attempt === 0)
  const underWay = (key?: string) =>
    [...all.values()].filter((one) => one.isRunning && (key === undefined || one.key === key))
  const held = () => [...all].filter(([, { isHeld }]) => isHeld)
  const pick = <A>(items: ReadonlyArray<A>, which: number): A | undefined => items[which % items.length]

  const assertRate = (bound: Bound, key: string | undefined) => {
    const times = begins.filter((one) => key === undefined || one.key === key).map(({ atMs }) => atMs)
    const last = times.at(-1)!
    for (const [i, from] of times.entries()) {
      const most = bound.burst! + Math.floor((last - from) * bound.rate! / bound.rate_ms!)
      assert.isAtMost(times.length - i, most, `${times.length - i} began within ${last - from} ms`)
    }
  }

  const began = (one: OneTask) => {
    begins.push({ key: one.key, atMs: nowMs })
    for (const [bound, key] of [[limits.total, undefined], [limits.eachKey, one.key]] as const) {
      const counted = underWay(key).length
      if (bound?.concurrency !== undefined && bound.concurrency !== null) {
        assert.isBelow(counted, bound.concurrency, `${counted} ran, and another one began`)
      }
      if (bound?.rate !== null && bound?.rate !== undefined) assertRate(bound, key)
    }
    one.isRunning = true
  }

  /** Until a key is served, each other key is served once at most. */
  const assertTurns = (waited: ReadonlyArray<string>, served: ReadonlyArray<string>) => {
    for (const key of waited) {
      const own = served.filter((one) => one === key).length
      const counts = passed.get(key) ?? new Map<string, number>()
      for (const other of keys) {
        if (other === key) continue
        const count = (counts.get(other) ?? 0) + served.filter((one) => one === other).length
        counts.set(other, count)
        if (!waits(key)) continue
        assert.isAtMost(count, own + 1, `${other} came ${count} times, and ${key} ${own} times while it waited`)
      }
      if (own > 0) passed.delete(key)
      else passed.set(key, counts)
    }
  }

  const publish = Effect.gen(function*() {
    if (isStored) {
      yield* call("dx_claim_outbox(1000, 1000, 'model', '{tasks}', '{20}', false, $1)", nowMs)
      return
    }
    const sent = yield* sql<{ task_id: string }>(
      `DELETE FROM queue_outbox WHERE deliver_at <= to_timestamp($1::float8 / 1000)
       RETURNING payload ->> 'task_id' AS task_id`,
      [nowMs]
    )
    messages.push(...sent.map(({ task_id }) => task_id))
    messages = messages.map((id) => ({ id, place: Math.random() })).sort((a, b) => a.place - b.place)
      .map(({ id }) => id)
  })

  interface Claimed {
    readonly id: string
    readonly attempt: number
  }

  const claimNamed = Effect.fnUntraced(function*(ids: ReadonlyArray<string>, leaseMs: number, repeats: boolean) {
    const claimId = ++claims
    const statement = call<{ out_outcome: string; out_id: string; out_attempt: number; out_due_ms: number | null }>(
      "dx_claim_tasks($1::uuid[], '{Call}', ARRAY[$2::bigint], 'w', $3, '{64,16,4,1}', $4)",
      ids,
      leaseMs,
      claimId,
      nowMs
    )
    // The answer of the first one is lost.
    if (repeats) yield* statement
    const answers = yield* statement
    const kept: Array<string> = []
    const claimed: Array<Claimed> = []
    for (const [i, { out_attempt: attempt, out_id: id, out_outcome: outcome }] of answers.entries()) {
      if (outcome === "Claimed") claimed.push({ id, attempt })
      if (outcome === "Locked" || outcome === "Suspect" || outcome === "NotDue") kept.push(ids[i]!)
    }
    return { kept, claimed }
  })

  const take = Effect.fnUntraced(function*(most: number, leaseMs: number) {
    const claimed: Array<Claimed> = []
    const rows = yield* call<{
      out_tasks: readonly [ReadonlyArray<string>, ReadonlyArray<string>, ReadonlyArray<number>] | null
      out_ids: ReadonlyArray<string> | null
      out_payloads: ReadonlyArray<string> | null
    }>(
      "dx_take_tasks($1, 'tasks', 't', 30000, '{Call}', ARRAY[$2::bigint], 'w', $3, $4)",
      most,
      leaseMs,
      ++claims,
      nowMs
    )
    for (const { out_ids: ids, out_payloads: payloads, out_tasks: tasks } of rows) {
      for (const [i, id] of (tasks?.[0] ?? []).entries()) claimed.push({ id, attempt: tasks![2][i]! })
      if (ids === null) continue
      const named = payloads!.map((payload) => (JSON.parse(payload) as { task_id: string }).task_id)
      const answer = yield* claimNamed(named, leaseMs, false)
      claimed.push(...answer.claimed)
      yield* sql(
        `DELETE FROM queue_messages WHERE id = ANY ($1::bigint[]) AND payload ->> 'task_id' <> ALL ($2::text[])`,
        [ids, answer.kept]
      )
      yield* sql(
        "UPDATE queue_messages SET visible_at = to_timestamp($2::float8 / 1000) WHERE id = ANY ($1::bigint[])",
        [
          ids,
          nowMs + 100
        ]
      )
    }
    assert.isAtMost(claimed.length, most)
    return claimed
  })

  const claim = Effect.fnUntraced(function*(most: number, leaseMs: number, repeats = false) {
    yield* publish
    const waited = keys.filter(waits)
    let claimed: ReadonlyArray<Claimed>
    if (isStored) claimed = yield* take(most, leaseMs)
    else {
      const ids = messages.splice(0, most)
      const answer = ids.length === 0
        ? { kept: [], claimed: [] }
        : yield* claimNamed(ids, leaseMs, repeats)
      messages.push(...answer.kept)
      claimed = answer.claimed
    }
    const served: Array<string> = []
    for (const { attempt, id } of claimed) {
      const one = all.get(id)!
      assert.isDefined(one, "a task that has ended was claimed")
      assert.isFalse(one.isHeld && attempt === one.attempt, "one attempt began twice")
      // The attempt after a lost one has its slot.
      if (!one.isRunning) {
        began(one)
        served.push(one.key)
      }
      one.attempt = attempt
      one.isHeld = true
    }
    // The bound of a key may hold it back.
    if (limits.eachKey === null) assertTurns(waited, served)
  })

  const fail = (id: string, attempt: number, outcome: "Failed" | "GivenBack", delayMs: number) =>
    sql<{ outcomes: ReadonlyArray<string> }>("SELECT dx_fail_tasks($1::jsonb, $2) AS outcomes", [
      JSON.stringify([{ task_id: id, attempt, outcome, delay_ms: delayMs, counts: outcome === "Failed" }]),
      nowMs
    ])

  const complete = Effect.fnUntraced(function*(id: string, one: OneTask) {
    const [row] = yield* sql<{ outcomes: ReadonlyArray<string> | null }>(
      "SELECT dx_complete_tasks(ARRAY[$1::uuid], ARRAY[$2::integer], '{null}', '{false}', false, $3) AS outcomes",
      [id, one.attempt, nowMs]
    )
    assert.isNull(row!.outcomes)
    all.delete(id)
  })

  const sweep = call("dx_sweep_tasks(1000, 1000, NULL, 0, $1)", 0).pipe(
    Effect.andThen(Effect.suspend(() => call("dx_sweep_tasks(1000, 1000, NULL, 0, $1)", nowMs)))
  )

  const perform = Effect.fnUntraced(function*(step: Step) {
    switch (step.call) {
      case "create": {
        const created = yield* call<{ out_id: string }>(
          "dx_create_tasks($1::jsonb, p_now_ms => $2)",
          JSON.stringify(step.keys.map((limit_key) => ({
            name: "Call",
            limit_key,
            payload: "null",
            max_attempts: 1000,
            queue: "tasks",
            delay_ms: step.delayMs
          }))),
          nowMs
        )
        for (const [i, { out_id: id }] of created.entries()) {
          all.set(id, { key: step.keys[i]!, dueMs: nowMs + step.delayMs, attempt: 0, isRunning: false, isHeld: false })
        }
        return
      }
      case "claim":
        return yield* claim(step.most, step.leaseMs)
      case "repeat":
        return yield* claim(step.which + 1, 30_000, true)
      case "complete": {
        const found = pick(held(), step.which)
        if (found !== undefined) yield* complete(...found)
        return
      }
      case "fail":
      case "giveBack": {
        const found = pick(held(), step.which)
        if (found === undefined) return
        const [id, one] = found
        const [row] = yield* step.call === "fail"
          ? fail(id, one.attempt, "Failed", step.which * 100)
          : fail(id, one.attempt, "GivenBack", 0)
        assert.deepStrictEqual(row!.outcomes, ["Retried"])
        one.isRunning = false
        one.isHeld = false
        return
      }
      // Its process was killed: its slot stays until its lease has ended and another attempt begins.
      case "forget": {
        const found = pick(held(), step.which)
        if (found !== undefined) found[1].isHeld = false
        return
      }
      case "cancel": {
        const found = pick([...all], step.which)
        if (found === undefined) return
        const [id, { key }] = found
        all.delete(id)
        // What comes later of this key has not waited so long.
        if (!waits(key)) passed.delete(key)
        yield* call("dx_cancel_tasks(ARRAY[$1], 'not needed', true, $2)", id, nowMs)
        return
      }
      case "lose": {
        if (!loses) return
        messages = []
        yield* sql("DELETE FROM queue_messages")
        return
      }
      case "wait":
        nowMs += step.ms
        yield* sweep
        return
      case "limit": {
        const row = (bound: Bound | null) => bound
        limits = { total: step.total, eachKey: step.eachKey }
        yield* call(
          "dx_set_limit('task', 'Call', $1::jsonb, true, $2)",
          JSON.stringify({ total: row(limits.total), each_key: row(limits.eachKey) }),
          nowMs
        )
        begins = []
        passed.clear()
        return
      }
    }
  })

  for (const step of steps) yield* perform(step)

  // Every slot comes back, and no wake-up is missing: all tasks run. Those of dead workers are found by a sweep.
  nowMs += 60_000
  yield* sweep
  for (let round = 0; all.size > 0; round++) {
    assert.isBelow(round, 2_000, `${all.size} tasks never run`)
    yield* claim(5, 3_600_000)
    for (const [id, one] of held()) yield* complete(id, one)
    nowMs += 500
    if (loses) yield* sweep
  }
  assert.deepStrictEqual(yield* sql("SELECT FROM queue_tasks WHERE has_slot IS NOT NULL"), [])
})
