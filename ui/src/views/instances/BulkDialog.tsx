import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { useEffect, useState } from "preact/hooks"
import { toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import { now } from "../../client/clock.ts"
import type { BulkProgress, Search } from "../../client/models.ts"
import { useAction } from "../../client/query.ts"
import { Dialog } from "../../parts/dialog.tsx"
import { ReasonField, reasonOf, TextField } from "../../parts/fields.tsx"
import { Loading, Problem } from "../../parts/panel.tsx"
import { number, plural } from "../../parts/time.tsx"
import { PlanOfMany } from "../instance/RetryDialog.tsx"
import type { BulkAction } from "./bulk.ts"
import { searchInWords } from "./filter.ts"

/** From here on one has to type the number, because a click is too easily done. */
const typeFrom = 10

/** Counts what the action would change, asks, and follows it. */
export const BulkDialog = (props: {
  readonly action: BulkAction
  readonly search: Search
  readonly onClose: () => void
}) => {
  const { action } = props
  // What is created after the count is not taken, and ages mean the same at both times.
  const [search] = useState<Search>(() => ({ createdBeforeMs: Math.ceil(now()), ...props.search }))
  const [found, setFound] = useState<BulkProgress | null>(null)
  const [progress, setProgress] = useState<BulkProgress | null>(null)
  const [reason, setReason] = useState("")
  const [typed, setTyped] = useState("")
  const running = useAction()
  const run = (dryRun: boolean, take: (item: BulkProgress) => void) =>
    running.run(
      api.operate.bulk({ payload: { action: action.action, search, dryRun, ...reasonOf(reason) } }).pipe(
        Effect.flatMap((stream) => Stream.runForEach(stream, (item) => Effect.sync(() => take(item))))
      ),
      () => {}
    )
  useEffect(() => run(true, setFound), [])
  const isCounted = found?._tag === "Done"
  const isDanger = action.isDanger || (found?.retry?.forgotten.length ?? 0) > 0
  const mustType = isDanger || (found?.done ?? 0) >= typeFrom
  const word = String(found?.done ?? 0)
  const canRun = isCounted && found.done > 0 && !running.isRunning && progress === null &&
    (!mustType || typed.trim() === word)
  return (
    <Dialog
      title={`${action.verb} all that match`}
      isWide
      onClose={props.onClose}
      onSubmit={() => {
        if (canRun) run(false, setProgress)
      }}
      buttons={progress === null && (
        <button type="submit" class={isDanger ? "button main danger" : "button main"} disabled={!canRun}>
          {action.verb} {isCounted && found.done > 0 ? plural(found.done, "instance") : ""}
        </button>
      )}
    >
      <p class="muted">
        Instances with: {searchInWords(search).join("; ")}
        {props.search.createdBeforeMs === undefined && " (new ones are left out)"}.
      </p>
      {progress !== null
        ? <Result action={action} found={found?.done ?? 0} progress={progress} />
        : !isCounted
        ? running.problem === null && (found === null ? <Loading /> : <p>Counting: {number(found.done)} so far…</p>)
        : found.done === 0
        ? <p>No instance matches that can be {action.done}.</p>
        : (
          <>
            <p>
              <strong>
                {found.isMore ? `At least ${plural(found.done, "instance")}` : plural(found.done, "instance")}
              </strong>{" "}
              would be {action.done}. The first:
            </p>
            <ul class="row tight">{found.first.map((id) => <li class="chip" key={id}>{id}</li>)}</ul>
            {found.retry !== null && <PlanOfMany found={found.done} sum={found.retry} />}
            {action.says !== undefined && <p>{action.says}</p>}
            {action.action === "pause" && (
              <p>
                Instances that are started later are not paused. To stop all of an orchestration,{" "}
                <a href="#/definitions">pause its definition</a>.
              </p>
            )}
            {action.action !== "delete" && action.action !== "resume" && (
              <ReasonField value={reason} onInput={setReason} />
            )}
            {mustType && (
              <TextField
                label={`Type ${word} to confirm`}
                value={typed}
                onInput={setTyped}
                {...(action.action === "delete"
                  ? { hint: "Histories, results and key-values are deleted. There is no way back." }
                  : {})}
              />
            )}
          </>
        )}
      {running.problem !== null && <Problem text={running.problem} />}
    </Dialog>
  )
}

const Result = (props: { readonly action: BulkAction; readonly found: number; readonly progress: BulkProgress }) => {
  const { action, found, progress } = props
  const isDone = progress._tag === "Done"
  return (
    <>
      <p role="status">
        {plural(progress.done, "instance")} {action.done}
        {progress.refused > 0 && `, ${number(progress.refused)} refused`}
        {isDone ? "." : "…"}
      </p>
      {!isDone && <progress aria-label="Progress" max={Math.max(found, 1)} value={progress.done + progress.refused} />}
      {progress.stopped !== null && (
        <Problem text={`It stopped half way: ${progress.stopped} Do it again to take up the rest.`} />
      )}
      {progress.refusals.length > 0 && (
        <ul class="list">
          {progress.refusals.map((refusal) => (
            <li key={refusal.instanceId}>
              <a href={toInstance(refusal.instanceId)}>{refusal.instanceId}</a>
              <span class="chip">{refusal.code}</span>
              <span class="grow muted">{refusal.message}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  )
}
