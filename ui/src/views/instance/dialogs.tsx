import { useState } from "preact/hooks"
import { toast } from "../../app/contexts.ts"
import { toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import type { InstanceDetail, PauseTarget } from "../../client/models.ts"
import { ActionDialog } from "../../parts/dialog.tsx"
import { Check, ReasonField, reasonOf, TextField } from "../../parts/fields.tsx"
import { PauseDialog, ResumeDialog } from "../../parts/pause.tsx"
import { durationOf } from "../../parts/times.ts"
import { RequestDialog } from "./RequestDialog.tsx"
import { RetryDialog } from "./RetryDialog.tsx"
import { SignalDialog } from "./SignalDialog.tsx"

/** What someone is about to do with an instance. */
export type Doing =
  | { readonly action: "signal" | "request"; readonly name: string | null }
  | { readonly action: "interrupt" | "terminate" | "delete" | "pause" }
  | { readonly action: "retry"; readonly from: number | null }
  | { readonly action: "resume"; readonly target: PauseTarget }
  | { readonly action: "fork"; readonly event: number | null }
  | { readonly action: "redrive"; readonly event: number; readonly name: string }

interface Props {
  readonly detail: InstanceDetail
  readonly onDone: () => void
  readonly onClose: () => void
}

export const InstanceDialog = ({ doing, ...props }: Props & { readonly doing: Doing }) => {
  const id = props.detail.instance.instanceId
  switch (doing.action) {
    case "signal":
      return <SignalDialog {...props} name={doing.name} />
    case "request":
      return <RequestDialog {...props} name={doing.name} />
    case "interrupt":
      return <InterruptDialog {...props} />
    case "terminate":
      return <TerminateDialog {...props} />
    case "retry":
      return <RetryDialog {...props} from={doing.from} />
    case "delete":
      return <DeleteDialog {...props} />
    case "fork":
      return <ForkDialog {...props} event={doing.event} />
    case "pause":
      return (
        <PauseDialog
          target={{ kind: "instance", name: id, version: null }}
          onDone={props.onDone}
          onClose={props.onClose}
        />
      )
    case "resume":
      return <ResumeDialog target={doing.target} onDone={props.onDone} onClose={props.onClose} />
    case "redrive":
      return (
        <ActionDialog
          title={`Redrive ${doing.name}`}
          confirm="Redrive"
          effect={() => api.operate.redriveSignal({ payload: { instanceId: id, event: doing.event } })}
          onDone={say(props)}
          onClose={props.onClose}
        >
          <p>The signal of event {doing.event} is sent again. Deploy a build that reads it first.</p>
        </ActionDialog>
      )
  }
}

const say = ({ onDone }: Pick<Props, "onDone">) => ({ message }: { readonly message: string }) => {
  toast(message)
  onDone()
}

const InterruptDialog = (props: Props) => {
  const [reason, setReason] = useState("")
  const [deadline, setDeadline] = useState("")
  const { instanceId } = props.detail.instance
  const deadlineMs = durationOf(deadline)
  const isWrong = deadline.trim() !== "" && deadlineMs === undefined
  return (
    <ActionDialog
      title={`Interrupt ${instanceId}`}
      confirm="Interrupt"
      isDanger
      canRun={!isWrong}
      effect={() =>
        api.operate.interrupt({
          payload: { instanceId, ...reasonOf(reason), ...(deadlineMs === undefined ? {} : { deadlineMs }) }
        })}
      onDone={say(props)}
      onClose={props.onClose}
    >
      <p>It cleans up, then it is Cancelled.</p>
      <ReasonField value={reason} onInput={setReason} />
      <TextField
        label="Terminate it after"
        value={deadline}
        onInput={setDeadline}
        placeholder="no limit"
        problem={isWrong ? "Write a duration such as 90s, 10 min or 2h." : undefined}
        hint="How long its clean-up may take, such as 10 min."
      />
    </ActionDialog>
  )
}

const TerminateDialog = (props: Props) => {
  const [reason, setReason] = useState("")
  const { instanceId } = props.detail.instance
  return (
    <ActionDialog
      title={`Terminate ${instanceId}`}
      confirm="Terminate"
      isDanger
      effect={() => api.operate.terminate({ payload: { instanceId, ...reasonOf(reason) } })}
      onDone={say(props)}
      onClose={props.onClose}
    >
      <p>
        It is Cancelled at its next turn, without clean-up: no finalizer runs, neither in the instance nor in its
        children.
      </p>
      <ReasonField value={reason} onInput={setReason} />
    </ActionDialog>
  )
}

const DeleteDialog = (props: Props) => {
  const { instanceId, status } = props.detail.instance
  const runs = status === "Running" || status === "ContinuedAsNew"
  const [typed, setTyped] = useState("")
  const [force, setForce] = useState(false)
  return (
    <ActionDialog
      title={`Delete ${instanceId}`}
      confirm="Delete"
      isDanger
      canRun={typed.trim() === instanceId && (!runs || force)}
      effect={() => api.operate.delete({ payload: { instanceId, force } })}
      onDone={say(props)}
      onClose={props.onClose}
    >
      <p>
        Its histories, results, key-values and messages are deleted, with those of its descendants. There is no way
        back.
      </p>
      {runs && <Check checked={force} onInput={setForce}>Delete it although it has not ended</Check>}
      <TextField label="Type the id to confirm" value={typed} onInput={setTyped} placeholder={instanceId} />
    </ActionDialog>
  )
}

const ForkDialog = (props: Props & { readonly event: number | null }) => {
  const { instanceId } = props.detail.instance
  const [event, setEvent] = useState(props.event === null ? "" : String(props.event))
  const [newId, setNewId] = useState(`${instanceId}-fork`)
  const atEvent = Number(event)
  const isEvent = Number.isInteger(atEvent) && atEvent > 0
  return (
    <ActionDialog
      title={`Fork ${instanceId}`}
      confirm="Fork"
      canRun={isEvent && newId.trim() !== "" && newId.trim() !== instanceId}
      effect={() => api.operate.fork({ payload: { instanceId, atEvent, newId: newId.trim() } })}
      onDone={({ message }) => {
        toast(message, toInstance(newId.trim()))
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <p>A new instance continues from this event of the current execution. This one stays as it is.</p>
      <TextField
        label="Event"
        type="number"
        value={event}
        onInput={setEvent}
        problem={event !== "" && !isEvent ? "Write the number of an event." : undefined}
        hint="The last event that the fork copies."
      />
      <TextField
        label="Id of the fork"
        value={newId}
        onInput={setNewId}
        problem={newId.trim() === instanceId ? "This is the id of the one that is forked." : undefined}
      />
    </ActionDialog>
  )
}
