import { useState } from "preact/hooks"
import { useReadOnly } from "../../app/contexts.ts"
import { link } from "../../app/route.ts"
import type { Pause, PauseTarget } from "../../client/models.ts"
import { Empty, Panel } from "../../parts/panel.tsx"
import { pauseTitle, ResumeDialog } from "../../parts/pause.tsx"
import { Ago, plural } from "../../parts/time.tsx"

export const PausesPanel = (props: { readonly pauses: ReadonlyArray<Pause>; readonly pausedInstances: number }) => {
  const [resuming, setResuming] = useState<PauseTarget | null>(null)
  return (
    <Panel title="Pauses" end={<a class="small" href="#/definitions">Pause a definition…</a>}>
      {props.pauses.length === 0 && props.pausedInstances === 0
        ? <Empty>Nothing is paused.</Empty>
        : (
          <ul class="list">
            {props.pauses.map((pause) => (
              <PauseItem
                key={JSON.stringify(pause.target)}
                pause={pause}
                onResume={() => setResuming(pause.target)}
              />
            ))}
            {props.pausedInstances > 0 && (
              <li>
                <span class="grow">{plural(props.pausedInstances, "instance")} paused individually</span>
                <a href={link(["instances"], { status: "Paused" })}>Show paused instances</a>
              </li>
            )}
          </ul>
        )}
      {resuming !== null && <ResumeDialog target={resuming} onClose={() => setResuming(null)} />}
    </Panel>
  )
}

const PauseItem = ({ onResume, pause }: { readonly pause: Pause; readonly onResume: () => void }) => {
  const readOnly = useReadOnly()
  return (
    <li>
      <span class="dot amber" aria-hidden="true" />
      <span class="grow">
        {pauseTitle(pause.target)}{" "}
        <span class="muted">
          {pause.reason ?? "no reason"} · paused <Ago atMs={pause.sinceMs} />
        </span>
      </span>
      <button
        type="button"
        class="button small"
        disabled={readOnly !== undefined}
        title={readOnly}
        aria-label={`Resume… ${pauseTitle(pause.target)}`}
        onClick={onResume}
      >
        Resume…
      </button>
    </li>
  )
}
