import { useState } from "preact/hooks"
import { toast, useOverview } from "../app/contexts.ts"
import { api } from "../client/client.ts"
import type { PauseTarget } from "../client/models.ts"
import { ActionDialog } from "./dialog.tsx"
import { ReasonField, reasonOf } from "./fields.tsx"
import { plural } from "./time.tsx"

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

const continues = (kind: PauseTarget["kind"], held: number): string => {
  const what = `What was held${held === 0 ? "" : ` (up to ${plural(held, "instance")})`} continues at once`
  switch (kind) {
    case "instance":
      return "It continues at once, with its next turn."
    case "orchestration":
      return `${what}, except instances that are paused individually.`
    case "activity":
      return "Processes take this activity again at once, for all instances."
    case "tag":
      return "Processes take activities with this tag again at once, for all instances."
    case "everything":
      return `${what}, except where another pause holds it.`
  }
}

export const ResumeDialog = (props: {
  readonly target: PauseTarget
  readonly onDone?: () => void
  readonly onClose: () => void
}) => {
  const held = useHeld(props.target)
  return (
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
      <p>{continues(props.target.kind, held)}</p>
    </ActionDialog>
  )
}

/** How many instances a pause of all versions may hold; 0 where that is not counted. */
const useHeld = ({ kind, name, version }: PauseTarget): number => {
  const counts = useOverview().data?.counts ?? []
  if (kind !== "everything" && (kind !== "orchestration" || version !== null)) return 0
  return counts
    .filter(({ orchestration, status }) => status === "Running" && (kind === "everything" || orchestration === name))
    .reduce((sum, { instances }) => sum + instances, 0)
}
