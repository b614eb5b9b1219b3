/**
 * Checks the results after all faults, from the database and from the notes of the processes.
 */
import * as auditTasks from "./auditTasks.ts"
import { latestShown, make as makeExcuses } from "./excuses.ts"
import type { Excuses, Span } from "./excuses.ts"
import type { Injected } from "./faults.ts"
import type { Unfinished } from "./fleet.ts"
import * as logs from "./logs.ts"
import type { ClientLine, EffectLine } from "./logs.ts"
import { now, sleep } from "./processes.ts"
import type { Process } from "./processes.ts"
import type { Store } from "./store.ts"

export interface Report {
  readonly violations: ReadonlyArray<string>
  /** A summary for people, line by line. */
  readonly summary: ReadonlyArray<string>
}

/** Deliveries of a pill; the default of `maxAttempts`. */
const maxAttempts = 10

/** A signal that was acknowledged this long before the timeout wins against it. */
const signalMarginMs = 500

/** Violations of one kind that are printed. */
const most = 10

interface Instance {
  readonly id: string
  readonly name: string
  readonly status: string
  readonly output: string | null
}

export const unfinished = async (store: Store, lines: ReadonlyArray<ClientLine>): Promise<Unfinished> => {
  // Between two executions of an instance the next one has no row yet.
  const rows = await store.sql<{ id: string; isOpenBox: boolean }>(
    `SELECT instance_id AS id, orchestration_name = 'Box' AND NOT EXISTS (
       SELECT FROM executions WHERE executions.instance_id = instances.instance_id AND executions.status IN ('Completed', 'Failed')
     ) AS "isOpenBox" FROM instances`
  )
  const existing = new Set(rows.map(({ id }) => id))
  // A launcher whose start was not acknowledged may have been stored.
  const launched = new Set(
    lines.filter(({ event, id }) => event === "acknowledged" || existing.has(id)).flatMap(logs.boxOf)
  )
  const sentTo = new Set(lines.filter(({ call }) => call === "send" || call === "cancel").map(({ id }) => id))
  const unstarted = [...sentTo].filter((id) => !existing.has(id) && !launched.has(id))
  const open = rows.filter(({ isOpenBox }) => isOpenBox).map(({ id }) => id)
  const toCome = [...launched, ...unstarted].filter((id) => id.startsWith("box-") && !existing.has(id))
  return {
    boxes: [...open, ...toCome],
    starts: unstarted.map((id) => ({ id, program: id.startsWith("box-") ? "Box" : "Flow" }))
  }
}

/** Longest time for the deaths that a pill still has before it. */
const pillMs = 240_000

/**
 * Waits until nothing runs and the queues are empty; returns what is left after the timeout, which begins when the last
 * pill is dead: each of its deliveries kills a process, and the machine decides how long the next one takes to start.
 */
export const untilQuiet = async (store: Store, timeoutMs: number): Promise<ReadonlyArray<string>> => {
  const begunAt = now()
  let deadline = begunAt + timeoutMs
  while (true) {
    const left = await store.sql<{ what: string }>(
      `SELECT what FROM (
         SELECT 'instance ' || instance_id || ' still runs' AS what FROM executions WHERE status = 'Running'
         UNION ALL
         SELECT 'instance ' || instance_id || ' was started and has not begun' FROM instances
         WHERE NOT EXISTS (SELECT FROM executions e WHERE e.instance_id = instances.instance_id)
         UNION ALL SELECT 'orchestrator_queue holds a row of ' || instance_id || ': ' || left(work_item, 60)
         FROM orchestrator_queue
         UNION ALL SELECT 'worker_queue holds a row of ' || instance_id || ', attempt ' || attempt_count FROM worker_queue
         UNION ALL SELECT 'instance_locks holds a row of ' || instance_id FROM instance_locks
         UNION ALL SELECT 'task ' || name || ' ' || id || ' is ' || status || ', attempt ' || attempt FROM queue_tasks
         WHERE status IN ('Pending', 'Running')
         UNION ALL SELECT 'task ' || name || ' ' || id || ' has ended with a lease' FROM queue_tasks
         WHERE status NOT IN ('Pending', 'Running') AND lease_until IS NOT NULL
         UNION ALL SELECT 'queue_outbox holds ' || payload::text || ', attempt ' || attempts FROM queue_outbox
         WHERE sent_at IS NULL
         UNION ALL SELECT 'queue_messages holds ' || payload::text || ' in ' || queue || ', attempt ' || attempts
         FROM queue_messages
       ) AS rest ORDER BY what`
    )
    if (left.length === 0) return []
    if (left.some(({ what }) => /(instance pill-|task TaskPill)/.test(what)) && now() < begunAt + pillMs) {
      deadline = now() + timeoutMs
    }
    if (now() > deadline) return abridged(left.map(({ what }) => `${what} after ${timeoutMs / 1000} s without faults`))
    await sleep(500)
  }
}

export const audit = async (options: {
  readonly store: Store
  readonly directory: string
  readonly processes: ReadonlyArray<Process>
  readonly injected: ReadonlyArray<Injected>
  readonly starved: ReadonlyArray<Span>
}): Promise<Report> => {
  const { directory, injected, processes, starved, store } = options
  const calls = logs.readClients(directory)
  const effects = logs.readEffects(directory)
  const rows = await store.sql<Instance>(
    `SELECT instance_id AS id, orchestration_name AS name, executions.status, output
     FROM instances JOIN executions USING (instance_id) WHERE execution_id = current_execution_id`
  )
  const instances = new Map(rows.map((row) => [row.id, row]))
  const acknowledged = calls.filter(({ event }) => event === "acknowledged")
  const excuses = makeExcuses({ effects, processes, injected, starved })
  const reruns = unjustified(effects, processes, excuses)
  const tasks = await auditTasks.audit({ store, calls, effects, processes, excuses })

  const checks: ReadonlyArray<ReadonlyArray<string>> = [
    starts(calls, acknowledged, instances),
    children(instances),
    boxes(calls, acknowledged, instances),
    cancellations(acknowledged, effects, instances),
    approvals(acknowledged, instances, await deadlines(store), injected),
    pills(effects, instances),
    await histories(store),
    keys(effects),
    reruns.violations,
    deaf(calls),
    deaths(processes, effects, injected),
    ...tasks.checks
  ]
  const count = (program: string) => rows.filter(({ name }) => name === program).length
  const counted = (list: ReadonlyArray<{ readonly name: string }>) => {
    const names = [...new Set(list.map(({ name }) => name))].sort()
    return names.map((name) => `${list.filter((one) => one.name === name).length} ${name}`).join(", ")
  }
  const letters = acknowledged.filter(({ call }) => call === "send").length
  const failed = calls.filter(({ event }) => event === "failed").length
  return {
    violations: checks.flatMap(abridged),
    summary: [
      `faults: ${counted(injected)}`,
      `${rows.length} instances: ${
        ["Flow", "Box", "Launcher", "Approval", "Errand", "Pill", "TurnPill"].map((name) => `${count(name)} ${name}`)
          .join(", ")
      }`,
      `${acknowledged.length} calls acknowledged, ${failed} failed; ${letters} letters`,
      `${processes.length} workers; ${effects.filter(({ event }) => event === "begin").length} handlers ran, ` +
      `${reruns.justified} of them again after a fault of their process`,
      tasks.summary
    ]
  }
}

const abridged = (violations: ReadonlyArray<string>): ReadonlyArray<string> =>
  violations.length <= most
    ? violations
    : [...violations.slice(0, most), `… and ${violations.length - most} more of this kind`]

/** Every acknowledged start, and every other start that was stored, has ended as its program determines. */
const starts = (
  calls: ReadonlyArray<ClientLine>,
  acknowledged: ReadonlyArray<ClientLine>,
  instances: ReadonlyMap<string, Instance>
) => {
  const begun = acknowledged.filter(({ call }) => call === "start")
  const cancelled = new Set(calls.filter(({ call }) => call === "cancel").map(({ id }) => id))
  const lost = begun.flatMap((line) => [line.id, ...logs.boxOf(line)]).filter((id) => !instances.has(id))
  const wrong = calls.filter(({ call, event }) => call === "start" && event === "call").flatMap(
    ({ id, payload, program }) => {
      const instance = instances.get(id)
      if (instance === undefined || program === "Pill" || program === "TurnPill" || cancelled.has(id)) return []
      const output = program === "Flow"
        ? String((payload as { readonly n: number }).n + 5)
        : program === "Errand"
        ? String((payload as { readonly n: number }).n + (payload as { readonly rounds: number }).rounds)
        : undefined
      return instance.status === "Completed" && (output === undefined || instance.output === output)
        ? []
        : [`${program} ${id} is ${instance.status} with ${instance.output?.slice(0, 200)}`]
    }
  )
  return [...lost.map((id) => `the acknowledged start of ${id} is lost`), ...wrong]
}

/** Instances that no client started have completed as well. */
const children = (instances: ReadonlyMap<string, Instance>) =>
  [...instances.values()].filter(({ id, status }) => id.includes("sub::") && status !== "Completed")
    .map(({ id, output, status }) => `child ${id} is ${status} with ${output?.slice(0, 200)}`)

/** Every acknowledged letter was read once, and the letters of each sender in the order they were sent. */
const boxes = (
  calls: ReadonlyArray<ClientLine>,
  acknowledged: ReadonlyArray<ClientLine>,
  instances: ReadonlyMap<string, Instance>
) => {
  const sent = (lines: ReadonlyArray<ClientLine>) => {
    const letters = new Map<string, Array<string>>()
    for (const { call, id, letter } of lines) {
      if (call === "send") letters.set(id, [...(letters.get(id) ?? []), letter!])
    }
    return letters
  }
  const tried = sent(calls.filter(({ event }) => event === "call"))
  const certain = sent(acknowledged)
  return [...tried].flatMap(([id, letters]) => {
    const instance = instances.get(id)
    if (instance?.status !== "Completed") {
      return instance === undefined && !certain.has(id)
        ? []
        : [`box ${id} is ${instance?.status} with ${instance?.output?.slice(0, 200)}`]
    }
    const read = JSON.parse(instance.output!) as ReadonlyArray<string>
    const missing = (certain.get(id) ?? []).filter((letter) => !read.includes(letter))
    const twice = read.filter((letter, i) => read.indexOf(letter) !== i)
    const strange = read.filter((letter) => !letters.includes(letter))
    const place = new Map(letters.map((letter, i) => [letter, i]))
    const late = read.filter((letter, i) =>
      read.slice(0, i).some((earlier) =>
        senderOf(earlier) === senderOf(letter) && place.get(earlier)! > place.get(letter)!
      )
    )
    return [
      ...missing.map((letter) => `box ${id} never read ${letter}, which was acknowledged`),
      ...twice.map((letter) => `box ${id} read ${letter} twice`),
      ...strange.map((letter) => `box ${id} read ${letter}, which was never sent`),
      ...late.map((letter) => `box ${id} read ${letter} after later letters of its sender`)
    ]
  })
}

const senderOf = (letter: string) => letter.slice(0, letter.lastIndexOf(":"))

/** A cancellation that was acknowledged before the start takes effect. */
const cancellations = (
  acknowledged: ReadonlyArray<ClientLine>,
  effects: ReadonlyArray<EffectLine>,
  instances: ReadonlyMap<string, Instance>
) => {
  const ran = new Set(effects.flatMap((line) => line.event === "begin" ? [line.instance] : []))
  return acknowledged.filter(({ call }) => call === "cancel").flatMap(({ id }) => {
    const { output, status } = instances.get(id) ?? {}
    const isCancelled = status === "Failed" && output?.startsWith("canceled: ") === true
    return [
      ...(isCancelled ? [] : [`${id} was cancelled before its start, and is ${status} with ${output}`]),
      ...(ran.has(id) ? [`${id} was cancelled before its start, and ran activities`] : [])
    ]
  })
}

/** When the timeout of each approval fell due. */
const deadlines = async (store: Store) => {
  const rows = await store.sql<{ id: string; due: number }>(
    `SELECT instance_id AS id, (event_data::jsonb ->> 'fire_at_ms')::float AS due FROM history
     JOIN instances USING (instance_id)
     WHERE orchestration_name = 'Approval' AND event_data::jsonb ->> 'type' = 'TimerCreated'`
  )
  return new Map(rows.map(({ due, id }) => [id, due]))
}

/** A signal that came in time wins against the timeout. */
const approvals = (
  acknowledged: ReadonlyArray<ClientLine>,
  instances: ReadonlyMap<string, Instance>,
  due: ReadonlyMap<string, number>,
  injected: ReadonlyArray<Injected>
) =>
  acknowledged.filter(({ call }) => call === "raise").flatMap(({ at, id }) => {
    const earlyMs = (due.get(id) ?? 0) - latestShown(injected, at)
    return earlyMs > signalMarginMs && instances.get(id)?.output === `"timeout"`
      ? [`approval ${id} timed out, although its signal was acknowledged ${Math.round(earlyMs)} ms before`]
      : []
  })

/** Pills are poison after a bounded number of deliveries. `starts` and `children` check that nothing else is. */
const pills = (effects: ReadonlyArray<EffectLine>, instances: ReadonlyMap<string, Instance>) =>
  [...instances.values()].filter(({ name }) => name === "Pill" || name === "TurnPill").flatMap(
    ({ id, name, output, status }) => {
      const runs = effects.filter((line) => line.event === "begin" && line.instance === id).length
      return [
        ...(status === "Failed" && output?.startsWith("poison: ") === true
          ? []
          : [`${name} ${id} is ${status} with ${output}, not poison`]),
        ...(runs >= 1 && runs <= maxAttempts ? [] : [`${name} ${id} killed ${runs} processes`])
      ]
    }
  )

/** Histories have no gaps, and one result for each activity, timer and child. */
const histories = async (store: Store) => {
  const gaps = await store.sql<{ id: string }>(
    `SELECT DISTINCT instance_id AS id FROM history GROUP BY instance_id, execution_id
     HAVING min(event_id) <> 1 OR max(event_id) <> count(*)`
  )
  const twice = await store.sql<{ id: string; type: string }>(
    `SELECT instance_id AS id, event_data::jsonb ->> 'type' AS type FROM history
     WHERE event_data::jsonb ->> 'type' IN ('ActivityCompleted', 'TimerFired', 'SubOrchestrationCompleted')
     GROUP BY 1, 2, execution_id, event_data::jsonb ->> 'source_event_id' HAVING count(*) > 1`
  )
  return [
    ...gaps.map(({ id }) => `the history of ${id} has gaps`),
    ...twice.map(({ id, type }) => `the history of ${id} has one ${type} twice`)
  ]
}

/** An idempotency key belongs to one call. */
const keys = (effects: ReadonlyArray<EffectLine>) => {
  const calls = new Map<string, string>()
  const mixed = new Set<string>()
  for (const line of effects) {
    if (line.event !== "begin" && line.event !== "end") continue
    const call = JSON.stringify([line.activity, line.instance, line.payload])
    if ((calls.get(line.key) ?? call) !== call) mixed.add(line.key)
    calls.set(line.key, call)
  }
  return [...mixed].map((key) => `idempotency key ${key} belongs to two calls`)
}

/**
 * A handler runs again only if its process died or was suspended, or its lock could not be renewed: a result that could
 * not be stored is kept.
 */
const unjustified = (
  effects: ReadonlyArray<EffectLine>,
  processes: ReadonlyArray<Process>,
  excuses: Excuses
) => {
  const byPid = new Map(processes.map((process) => [process.pid, process]))
  const runs = new Map<string, Array<EffectLine & { readonly event: "begin" | "end" }>>()
  for (const line of effects) {
    if (line.event !== "begin" || line.activity === "Kill" || line.activity === "TurnPill") continue
    runs.set(line.key, [...(runs.get(line.key) ?? []), line])
  }
  const violations: Array<string> = []
  let justified = 0
  for (const [key, unordered] of runs) {
    const begins = unordered.sort((a, b) => a.delivery - b.delivery)
    for (let i = 1; i < begins.length; i++) {
      const [before, again] = [begins[i - 1]!, begins[i]!]
      const process = byPid.get(before.pid)
      const excused = excuses({
        of: "activities",
        pid: before.pid,
        lockMs: process?.lockMs ?? 0,
        from: Math.min(before.at, again.at),
        until: Math.max(before.at, again.at)
      })
      if (excused) justified++
      else {
        violations.push(
          `${again.activity} of ${again.instance} ran again after ${
            Math.round(again.at - before.at)
          } ms, although nothing ` +
            `had happened to ${process?.name} (key ${key})`
        )
      }
    }
  }
  return { violations, justified }
}

/** Every process that lives takes orchestrations and activities, or tasks. */
const deaf = (calls: ReadonlyArray<ClientLine>) => {
  const pings = calls.filter(({ call }) => call === "ping")
  return pings.filter(({ event }) => event === "call").flatMap(({ id, part }) => {
    const answer = pings.find((ping) => ping.id === id && ping.part === part && ping.event !== "call")
    return answer?.event === "acknowledged"
      ? []
      : [`${id} lives, but takes no ${part === "tasks" ? "tasks" : "work"}: ${answer?.message}`]
  })
}

/** Workers ended only because of a pill, by request, or because they could not connect at their start. */
const deaths = (
  processes: ReadonlyArray<Process>,
  effects: ReadonlyArray<EffectLine>,
  injected: ReadonlyArray<Injected>
) => {
  const victims = new Set(
    effects.flatMap((line) =>
      line.event === "begin" && /^(Kill|TurnPill)$/.test(line.activity) ||
        line.event === "taskBegin" && line.name === "TaskPill" ?
        [line.pid] :
        []
    )
  )
  const isOfConnections = new Set(["cuts", "logins", "rights"])
  // Without a connection a worker does not start, and reports that.
  const isCutOff = ({ endedAt, output, startedAt }: Process) =>
    /(verify|connect): (no connection to the database|the database refused the login|the database role lacks a right|.*\(57P01\))/
      .test(output()) &&
    injected.some(({ from, name, to }) => isOfConnections.has(name) && from < endedAt! && to > startedAt)
  return processes.filter((process) =>
    process.endedAt !== undefined && process.endedAt < (process.endingAt ?? Infinity) && !victims.has(process.pid) &&
    !isCutOff(process)
  ).map(({ code, name, output, signal }) => `${name} ended by itself (${signal ?? code}): ${output().slice(-500)}`)
}
