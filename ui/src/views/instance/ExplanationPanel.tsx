import type { ComponentChildren } from "preact"
import { useOverview, useReadOnly, useSession } from "../../app/contexts.ts"
import { toInstance } from "../../app/route.ts"
import type { Instance, InstanceDetail } from "../../client/models.ts"
import { Payload } from "../../parts/payload.tsx"
import { Ago, dateTime, For, fullTime } from "../../parts/time.tsx"
import { BlockNote, buildsOf } from "./BlockNote.tsx"
import type { Doing } from "./dialogs.tsx"

/** Why the instance does not continue, and beside it what would help. */
export const ExplanationPanel = (props: { readonly detail: InstanceDetail; readonly onDo: (doing: Doing) => void }) => {
  const { explanation, instance, interruption } = props.detail
  return (
    <section class={`panel explanation ${toneOf(props.detail)}`} aria-label="Why it is as it is">
      <div class="body">
        {instance.block === null
          ? (
            <p class="sentence">
              {explanation.cause === "Ended"
                ? <EndedSentence instance={instance} />
                : withLocalTimes(explanation.sentence)}
            </p>
          )
          : <BlockedSentence instance={instance} block={instance.block} />}
        <div class="row">
          <Cures {...props} />
        </div>
      </div>
      {interruption !== null && instance.status === "Running" && (
        <p class="note">
          Interrupted <Ago atMs={interruption.sinceMs} />: {interruption.reason}
        </p>
      )}
      {instance.block !== null && (
        <div class="body">
          <BlockNote instance={instance} block={instance.block} />
        </div>
      )}
      {instance.status !== "Running" && <Outcome detail={props.detail} />}
    </section>
  )
}

/** What people need of it who do not write the code; what the code and the history say stands below. */
const BlockedSentence = (
  { block, instance }: { readonly instance: Instance; readonly block: NonNullable<Instance["block"]> }
) => {
  const overview = useOverview().data
  return (
    <p class="sentence">
      {instance.instanceId} has been blocked for <For sinceMs={block.sinceMs} />: build{" "}
      {block.build}, which tried last, cannot continue it.{" "}
      {overview !== null && `${runsNow(block.build, [...buildsOf(instance, overview.processes).keys()])} `}
      Tell the developers. Nothing is lost: it continues by itself when a build that fits runs.
    </p>
  )
}

/** The store does not know which build has begun it; but it knows these. */
const runsNow = (tried: string, builds: ReadonlyArray<string>): string => {
  const others = builds.filter((build) => build !== tried)
  if (builds.length === 0) return "No process that serves it runs now."
  if (others.length === 0) return "No other build runs now."
  const also = builds.length === others.length ? "" : " as well"
  return others.length === 1 ? `Build ${others[0]} runs now${also}.` : `Builds ${others.join(", ")} run now${also}.`
}

/** Its age grows, as those beside it do. */
const EndedSentence = ({ instance: { error, instanceId, status, updatedAtMs } }: { readonly instance: Instance }) => (
  <>
    {instanceId} {status === "Completed" ? "completed" : status === "Cancelled" ? "was cancelled" : "failed"}{" "}
    <Ago atMs={updatedAtMs} />
    {error !== null && `: ${error}`}.
  </>
)

/** The server writes UTC; people read the clock on their wall. */
const withLocalTimes = (sentence: string): ComponentChildren =>
  sentence.split(/(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}Z)/).map((part, at) => {
    const ms = at % 2 === 1 ? Date.parse(part.replace(" ", "T")) : Number.NaN
    return Number.isNaN(ms)
      ? part
      : <time key={at} class="nowrap" dateTime={new Date(ms).toISOString()} title={fullTime(ms)}>{dateTime(ms)}</time>
  })

const toneOf = ({ explanation, instance }: InstanceDetail): string => {
  if (instance.block !== null || instance.status === "Failed") return "red"
  if (
    instance.pause !== null ||
    ["Unserved", "ActivityUnserved", "Retries", "ActivityPaused", "Nothing"].includes(explanation.cause)
  ) return "amber"
  return instance.status === "Completed" ? "green" : instance.status === "Running" ? "blue" : ""
}

const Outcome = ({ detail: { instance } }: { readonly detail: InstanceDetail }) => {
  const { seesPayloads } = useSession()
  if (instance.error !== null) {
    return (
      <div class="body">
        <h2>{instance.status === "Cancelled" ? "Reason" : "Error"}</h2>
        <Payload text={instance.error} label="error" />
      </div>
    )
  }
  if (instance.output === null && seesPayloads) return null
  return (
    <div class="body">
      <h2>Output</h2>
      <Payload text={instance.output} label="output" />
    </div>
  )
}

const Cures = ({ detail, onDo }: { readonly detail: InstanceDetail; readonly onDo: (doing: Doing) => void }) => {
  const readOnly = useReadOnly()
  const { explanation: { cause }, instance, waits } = detail
  const act = (text: string, doing: Doing, isMain = true) => (
    <button
      key={text}
      type="button"
      class={isMain ? "button main" : "button"}
      disabled={readOnly !== undefined}
      title={readOnly}
      onClick={() => onDo(doing)}
    >
      {text}
    </button>
  )
  const cures: Array<ComponentChildren> = []
  if (instance.block !== null) {
    cures.push(
      <a key="event" class="button" href={toInstance(instance.instanceId, { event: String(instance.block.eventId) })}>
        Show event {instance.block.eventId}
      </a>,
      act("Retry from an event…", { action: "retry", from: null }, false)
    )
  }
  if (instance.pause !== null) cures.push(act("Resume…", { action: "resume", target: instance.pause.target }))
  if (instance.status === "Failed" || instance.status === "Cancelled") {
    cures.push(act("Retry…", { action: "retry", from: null }))
  }
  if (cause === "Request") {
    for (
      const name of new Set(waits.flatMap((wait) => wait.kind === "request" && wait.name !== null ? [wait.name] : []))
    ) {
      cures.push(act(`Ask ${name}…`, { action: "request", name }))
    }
  }
  if (cause === "Signal") {
    for (
      const name of new Set(waits.flatMap((wait) => wait.kind === "signal" && wait.name !== null ? [wait.name] : []))
    ) {
      cures.push(act(`Send ${name}…`, { action: "signal", name }))
    }
  }
  if (cause === "Child") {
    for (const wait of waits) {
      if (wait.kind === "child" && wait.instanceId !== null && cures.length < 3) {
        cures.push(
          <a key={wait.instanceId} class="button" href={toInstance(wait.instanceId)}>Open {wait.instanceId}</a>
        )
      }
    }
  }
  if (cause === "Unserved" || cause === "ActivityUnserved") {
    cures.push(<a key="processes" class="button" href="#/processes">Show processes</a>)
  }
  if (cause === "Queued" || cause === "ActivityQueued") {
    cures.push(<a key="queues" class="button" href="#/queues">Show queues</a>)
  }
  if (cause === "ActivityLimited" || cause === "Limited") {
    cures.push(<a key="limits" class="button" href="#/limits">Show limits</a>)
  }
  if (cause === "Task") cures.push(<a key="tasks" class="button" href="#/tasks">Show tasks</a>)
  if (cause === "ActivityPaused") cures.push(<a key="pauses" class="button" href="#/">Show pauses</a>)
  return <>{cures}</>
}
