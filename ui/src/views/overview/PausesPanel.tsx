import { toast, useReadOnly } from "../../app/contexts.ts"
import { link } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import type { Pause } from "../../client/models.ts"
import { useAction } from "../../client/query.ts"
import { Empty, Panel, Problem } from "../../parts/panel.tsx"
import { pauseTitle } from "../../parts/pause.tsx"
import { Ago, plural } from "../../parts/time.tsx"

export const PausesPanel = (props: { readonly pauses: ReadonlyArray<Pause>; readonly pausedInstances: number }) => (
  <Panel title="Pauses">
    {props.pauses.length === 0 && props.pausedInstances === 0
      ? <Empty>Nothing is paused.</Empty>
      : (
        <ul class="list">
          {props.pauses.map((pause) => <PauseItem key={JSON.stringify(pause.target)} pause={pause} />)}
          {props.pausedInstances > 0 && (
            <li>
              <span class="grow">{plural(props.pausedInstances, "instance")} paused by themselves</span>
              <a href={link(["instances"], { status: "Paused" })}>Show paused instances</a>
            </li>
          )}
        </ul>
      )}
  </Panel>
)

const PauseItem = ({ pause }: { readonly pause: Pause }) => {
  const readOnly = useReadOnly()
  const action = useAction()
  return (
    <li>
      <span class="dot amber" aria-hidden="true" />
      <span class="grow">
        {pauseTitle(pause.target)}{" "}
        <span class="muted">
          {pause.reason ?? "no reason"}, <Ago atMs={pause.sinceMs} />
        </span>
      </span>
      <button
        type="button"
        class="button small"
        disabled={readOnly !== undefined || action.isRunning}
        title={readOnly}
        aria-label={`Resume ${pauseTitle(pause.target)}`}
        onClick={() =>
          action.run(api.operate.resume({ payload: { target: pause.target } }), ({ message }) => toast(message))}
      >
        Resume
      </button>
      {action.problem !== null && <Problem text={action.problem} />}
    </li>
  )
}
