import { useState } from "preact/hooks"
import { api } from "../../client/client.ts"
import { now } from "../../client/clock.ts"
import type { Backfilled } from "../../client/models.ts"
import { useAction } from "../../client/query.ts"
import { Dialog } from "../../parts/dialog.tsx"
import { TextField } from "../../parts/fields.tsx"
import { Problem } from "../../parts/panel.tsx"
import { dateTime, fullTime, number, plural } from "../../parts/time.tsx"
import { timeOf } from "../../parts/times.ts"

/** From here on one has to type the number, because a click is too easily done. */
const typeFrom = 10

interface Counted {
  readonly range: { readonly fromMs: number; readonly toMs: number }
  readonly found: Backfilled
}

/** Counts the occurrences of a range, then asks for them. */
export const BackfillDialog = (props: {
  readonly name: string
  readonly onSay: (answer: { readonly message: string }) => void
  readonly onClose: () => void
}) => {
  const { name } = props
  const [from, setFrom] = useState("1d")
  const [to, setTo] = useState("now")
  const [counted, setCounted] = useState<Counted | null>(null)
  const [typed, setTyped] = useState("")
  const action = useAction()
  const nowMs = now()
  const [fromMs, toMs] = [timeOf(from, nowMs), timeOf(to, nowMs)]
  const change = (set: (value: string) => void) => (value: string) => {
    set(value)
    // What was counted is not what would be started.
    setCounted(null)
    setTyped("")
  }
  const hint = "Such as 2h (ago), 2026-11-27, 2026-11-27T08:00Z; without a zone, the time is yours."
  const word = String(counted?.found.occurrences ?? 0)
  const mustType = counted !== null && (counted.found.occurrences >= typeFrom || counted.found.isMore)
  const canRun = !action.isRunning && (counted === null
    ? fromMs !== undefined && toMs !== undefined && fromMs <= toMs
    : counted.found.occurrences > 0 && (!mustType || typed.trim() === word))
  const submit = () => {
    if (!canRun) return
    if (counted !== null) {
      return action.run(
        api.operate.backfillSchedule({ payload: { name, ...counted.range, dryRun: false } }),
        (answer) => {
          props.onSay(answer)
          props.onClose()
        }
      )
    }
    const range = { fromMs: Math.floor(fromMs!), toMs: Math.floor(toMs!) }
    action.run(
      api.operate.backfillSchedule({ payload: { name, ...range, dryRun: true } }),
      (found) => setCounted({ range, found })
    )
  }
  return (
    <Dialog
      title={`Backfill ${name}`}
      onClose={props.onClose}
      onSubmit={submit}
      buttons={
        <button type="submit" class="button main" disabled={!canRun}>
          {action.isRunning
            ? "Working…"
            : counted === null
            ? "Count"
            : `Start ${plural(counted.found.occurrences, "occurrence")}`}
        </button>
      }
    >
      <p>
        Starts the occurrences of a time that has passed, beside each other and whatever runs. One whose instance or
        task exists already starts nothing.
      </p>
      <div class="fields">
        <TextField
          label="From"
          value={from}
          onInput={change(setFrom)}
          problem={fromMs === undefined ? "Write a time." : undefined}
          hint={hint}
        />
        <TextField
          label="To"
          value={to}
          onInput={change(setTo)}
          problem={toMs === undefined
            ? "Write a time."
            : fromMs !== undefined && fromMs > toMs
            ? "It is before the beginning."
            : undefined}
        />
      </div>
      {counted !== null && (
        <div role="status">
          {counted.found.occurrences === 0
            ? <p>No occurrence of this range has passed.</p>
            : (
              <>
                <p>
                  <strong>
                    {counted.found.isMore ? "More than " : ""}
                    {plural(counted.found.occurrences, "occurrence")}
                  </strong>{" "}
                  from {dateTime(counted.range.fromMs)} to {dateTime(counted.range.toMs)}. The first:
                </p>
                <ul class="row tight">
                  {counted.found.firstMs.map((ms) => (
                    <li class="chip" key={ms} title={fullTime(ms)}>{dateTime(ms)}</li>
                  ))}
                  {counted.found.occurrences > counted.found.firstMs.length && (
                    <li class="muted small">
                      and {number(counted.found.occurrences - counted.found.firstMs.length)} more
                    </li>
                  )}
                </ul>
              </>
            )}
        </div>
      )}
      {mustType && <TextField label={`Type ${word} to confirm`} value={typed} onInput={setTyped} />}
      {action.problem !== null && <Problem text={action.problem} />}
    </Dialog>
  )
}
