import { useState } from "preact/hooks"
import { toast } from "../app/contexts.ts"
import { api } from "../client/client.ts"
import type { PauseTarget } from "../client/models.ts"
import { ActionDialog } from "./dialog.tsx"
import { ReasonField, reasonOf } from "./fields.tsx"

export const pauseTitle = ({ kind, name, version }: PauseTarget): string =>
  kind === "everything" ? "everything" : `${kind} ${name ?? ""}${version === null ? "" : ` ${version}`}`

const effects = {
  instance: "It runs no turn until it is resumed. Activities that run are not stopped; their outcomes wait.",
  orchestration: "No instance of it runs a turn until it is resumed. Activities that run are not stopped.",
  activity: "No process takes this activity until it is resumed. Those that run are not stopped.",
  tag: "No process takes an activity with this tag until it is resumed. Those that run are not stopped.",
  everything: "No process runs a turn or takes an activity until it is resumed."
}

export const PauseDialog = (props: {
  readonly target: PauseTarget
  readonly onDone?: () => void
  readonly onClose: () => void
}) => {
  const [reason, setReason] = useState("")
  return (
    <ActionDialog
      title={`Pause ${pauseTitle(props.target)}`}
      confirm="Pause"
      onClose={props.onClose}
      effect={() => api.operate.pause({ payload: { target: props.target, ...reasonOf(reason) } })}
      onDone={({ message }) => {
        toast(message)
        props.onDone?.()
      }}
    >
      <p>{effects[props.target.kind]}</p>
      <ReasonField value={reason} onInput={setReason} />
    </ActionDialog>
  )
}

const continues = {
  instance: "It continues with its next turn.",
  orchestration: "All its instances continue, except those that are paused individually.",
  activity: "Processes take this activity again, for all instances.",
  tag: "Processes take activities with this tag again, for all instances.",
  everything: "Turns run and activities are taken again, for all instances, except where another pause holds them."
}

export const ResumeDialog = (props: {
  readonly target: PauseTarget
  readonly onDone?: () => void
  readonly onClose: () => void
}) => (
  <ActionDialog
    title={`Resume ${pauseTitle(props.target)}${props.target.kind === "instance" ? "" : " for all instances"}`}
    confirm="Resume"
    onClose={props.onClose}
    effect={() => api.operate.resume({ payload: { target: props.target } })}
    onDone={({ message }) => {
      toast(message)
      props.onDone?.()
    }}
  >
    <p>{continues[props.target.kind]}</p>
  </ActionDialog>
)
