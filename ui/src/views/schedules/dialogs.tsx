import { useState } from "preact/hooks"
import { toast } from "../../app/contexts.ts"
import { api } from "../../client/client.ts"
import { ActionDialog } from "../../parts/dialog.tsx"
import { ReasonField, reasonOf, TextField } from "../../parts/fields.tsx"
import { BackfillDialog } from "./BackfillDialog.tsx"
import { toSchedule } from "./parts.tsx"

/** What someone is about to do with a schedule. */
export type Doing = "run" | "pause" | "resume" | "backfill" | "delete"

interface Props {
  readonly name: string
  readonly onDone: () => void
  readonly onClose: () => void
}

export const ScheduleDialog = ({ doing, ...props }: Props & { readonly doing: Doing }) => {
  const { name } = props
  const say = ({ message }: { readonly message: string }) => {
    toast(message, doing === "delete" ? undefined : toSchedule(name))
    props.onDone()
  }
  switch (doing) {
    case "run":
      return (
        <ActionDialog
          title={`Run ${name} now`}
          confirm="Run now"
          effect={() => api.operate.runSchedule({ payload: { name } })}
          onDone={say}
          onClose={props.onClose}
        >
          <p>
            A scheduler starts it, by the rule for overlaps, also while the schedule is paused. Its timing stays as it
            is.
          </p>
        </ActionDialog>
      )
    case "pause":
      return <PauseDialog {...props} onSay={say} />
    case "resume":
      return (
        <ActionDialog
          title={`Resume schedule ${name}`}
          confirm="Resume"
          effect={() => api.operate.resumeSchedule({ payload: { name } })}
          onDone={say}
          onClose={props.onClose}
        >
          <p>It starts with its next occurrence. Those of the pause are not made up for: backfill them.</p>
        </ActionDialog>
      )
    case "backfill":
      return <BackfillDialog {...props} onSay={say} />
    case "delete":
      return <DeleteDialog {...props} onSay={say} />
  }
}

interface Saying extends Props {
  readonly onSay: (answer: { readonly message: string }) => void
}

const PauseDialog = ({ name, onClose, onSay }: Saying) => {
  const [reason, setReason] = useState("")
  return (
    <ActionDialog
      title={`Pause schedule ${name}`}
      confirm="Pause"
      effect={() => api.operate.pauseSchedule({ payload: { name, ...reasonOf(reason) } })}
      onDone={onSay}
      onClose={onClose}
    >
      <p>Occurrences during the pause do not start, neither then nor later. What runs continues.</p>
      <ReasonField value={reason} onInput={setReason} />
    </ActionDialog>
  )
}

const DeleteDialog = ({ name, onClose, onSay }: Saying) => {
  const [typed, setTyped] = useState("")
  return (
    <ActionDialog
      title={`Delete schedule ${name}`}
      confirm="Delete"
      isDanger
      canRun={typed.trim() === name.trim()}
      effect={() => api.operate.deleteSchedule({ payload: { name } })}
      onDone={onSay}
      onClose={onClose}
    >
      <p>
        The schedule and the list of its runs are deleted. What they have started continues. A process that has it in
        its code creates it again when it starts.
      </p>
      <TextField label="Type the name to confirm" value={typed} onInput={setTyped} placeholder={name} />
    </ActionDialog>
  )
}
