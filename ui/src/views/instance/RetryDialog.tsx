import { useState } from "preact/hooks"
import { toast } from "../../app/contexts.ts"
import { toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import type { InstanceDetail, Retried, RetrySum } from "../../client/models.ts"
import { useQuery } from "../../client/query.ts"
import { ActionDialog } from "../../parts/dialog.tsx"
import { ReasonField, reasonOf, TextField } from "../../parts/fields.tsx"
import { Answer } from "../../parts/panel.tsx"
import { plural } from "../../parts/time.tsx"

/** Shows what a retry would do before it does it. */
export const RetryDialog = (props: {
  readonly detail: InstanceDetail
  /** The last event that stays; null: what the store chooses. */
  readonly from: number | null
  readonly onDone: () => void
  readonly onClose: () => void
}) => {
  const { block, instanceId } = props.detail.instance
  // With all events kept, the replay of a blocked one would stop at the same event again.
  const proposed = props.from ?? (block === null ? null : Math.max(1, block.eventId - 1))
  const [from, setFrom] = useState(proposed === null ? "" : String(proposed))
  const [reason, setReason] = useState("")
  const event = Number(from)
  const isWrong = from !== "" && (!Number.isInteger(event) || event < 1)
  const options = from === "" || isWrong ? {} : { from: event }
  const plan = useQuery(() => api.operate.retry({ payload: { instanceId, dryRun: true, ...options } }), [from], {
    delayMs: 300
  })
  const repeats = plan.data?.instances.some(({ forgotten }) => forgotten.length > 0) === true
  return (
    <ActionDialog
      title={`Retry ${instanceId}`}
      confirm="Retry"
      isWide
      isDanger={repeats}
      canRun={!isWrong && !plan.isLoading && plan.problem === null}
      effect={() => api.operate.retry({ payload: { instanceId, dryRun: false, ...options, ...reasonOf(reason) } })}
      onDone={() => {
        // Whether a process can continue it is not known yet.
        toast(`The retry of ${instanceId} is accepted: it continues when a process takes it`)
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <TextField
        label="From event"
        type="number"
        value={from}
        onInput={setFrom}
        problem={isWrong ? "Write the number of an event." : undefined}
        {...(block === null ? { placeholder: "the one before what ended it" } : {})}
        hint={block === null
          ? "The last event that stays. What comes after it is removed."
          : `The last event that stays. What comes after it is removed. It is blocked at event ${block.eventId}: ` +
            "to keep that one would change nothing."}
      />
      <Answer query={{ data: plan.problem === null ? plan.data : null, problem: plan.problem }}>
        {(data) => <Plan plan={data} />}
      </Answer>
      <ReasonField value={reason} onInput={setReason} />
    </ActionDialog>
  )
}

type Calls = Retried["instances"][number]["again"]

const AgainWords = () => <>Runs again, with the same idempotency key:</>

const ForgottenWords = () => (
  <>Runs a second time, if the code still calls it; what it did the first time stays done:</>
)

/** What speaks against it, as items of a list. */
const Warnings = ({ warnings }: { readonly warnings: ReadonlyArray<string> }) => (
  <>
    {warnings.map((warning) => (
      <li key={warning} class="plan">
        <p class="warning">
          <strong>{warning}</strong>
        </p>
      </li>
    ))}
  </>
)

/** What the retries of many do together. */
export const PlanOfMany = ({ found, sum }: { readonly found: number; readonly sum: RetrySum }) => (
  <ul class="stack" aria-label="What the retries do">
    {sum.again.length + sum.forgotten.length + sum.refused > 0 && (
      <li class="plan">
        {sum.again.length > 0 && (
          <p>
            <AgainWords /> {callsInWords(sum.again)}.
          </p>
        )}
        {sum.forgotten.length > 0 && (
          <p class="warning">
            <ForgottenWords /> {callsInWords(sum.forgotten)}.
          </p>
        )}
        {sum.refused > 0 && <p>{plural(sum.refused, "instance")} cannot be retried, and stay as they are.</p>}
      </li>
    )}
    <Warnings warnings={sum.warnings} />
    {found > sum.looked && <li class="muted">Only the first {sum.looked} were looked at for this.</li>}
  </ul>
)

const callsInWords = (calls: RetrySum["again"]) =>
  calls.map(({ calls, name }) => `${plural(calls, "call")} of ${name}`).join(", ")

const Plan = ({ plan }: { readonly plan: Retried }) => (
  <ul class="stack" aria-label="What the retry does">
    {plan.instances.slice(0, 50).map((item) => (
      <li key={item.instanceId} class="plan">
        <p>
          <strong>{item.instanceId}</strong> continues from event {item.from}. {item.removed === null
            ? "All events stay."
            : `Events ${item.removed[0] ?? ""} to ${item.removed[1] ?? ""} are removed.`}
        </p>
        {item.again.length > 0 && (
          <p>
            <AgainWords /> <CallList calls={item.again} instanceId={item.instanceId} />
          </p>
        )}
        {item.forgotten.length > 0 && (
          <p class="warning">
            <ForgottenWords /> <CallList calls={item.forgotten} instanceId={item.instanceId} />
          </p>
        )}
        {item.tasks.length > 0 && (
          <p>
            Waits again for tasks, which run again, under the same id, if they are dead or were cancelled:{" "}
            <CallList
              calls={item.tasks.map(({ eventId, id, key, name }) => ({
                eventId,
                name: [name ?? "one whose name is sealed", id, key === null ? null : `with the key ${key}`]
                  .filter((word) => word !== null).join(" ")
              }))}
              instanceId={item.instanceId}
            />
          </p>
        )}
      </li>
    ))}
    <Warnings warnings={plan.warnings} />
    {plan.instances.length > 50 && <li class="muted">and {plan.instances.length - 50} more children</li>}
  </ul>
)

const CallList = ({ calls, instanceId }: { readonly calls: Calls; readonly instanceId: string }) => (
  <>
    {calls.slice(0, 30).map(({ eventId, name }, at) => (
      <span key={eventId}>
        {at > 0 && ", "}
        {name} (<a href={toInstance(instanceId, { event: String(eventId) })}>event {eventId}</a>)
      </span>
    ))}
    {calls.length > 30 && ` and ${calls.length - 30} more`}
  </>
)
