import { useReadOnly } from "../../app/contexts.ts"
import { link, toInstance } from "../../app/route.ts"
import type { Instance, InstanceDetail } from "../../client/models.ts"
import { Attributes } from "../../parts/attributes.tsx"
import { InstanceBadges } from "../../parts/badges.tsx"
import { Menu, MenuItem } from "../../parts/menu.tsx"
import { CopyButton } from "../../parts/payload.tsx"
import { Ago, duration, For } from "../../parts/time.tsx"
import type { Doing } from "./dialogs.tsx"

export const InstanceHeader = (
  { detail, onDo }: { readonly detail: InstanceDetail; readonly onDo: (doing: Doing) => void }
) => {
  const { ancestors, instance } = detail
  return (
    <header class="instance-head">
      <nav class="crumbs" aria-label="Ancestors">
        <a href="#/instances">Instances</a>
        {ancestors.map((id) => <a key={id} href={toInstance(id)}>{id}</a>)}
      </nav>
      <div class="view-head">
        <h1>{instance.instanceId}</h1>
        <CopyButton text={instance.instanceId} label="id" />
        <InstanceBadges instance={instance} />
        {detail.interruption !== null && instance.status === "Running" && <span class="badge amber">Interrupted</span>}
        <div class="end">
          <ActionsMenu detail={detail} onDo={onDo} />
        </div>
      </div>
      <p class="facts">
        <span>
          <a href={link(["instances"], { name: instance.orchestration })}>{instance.orchestration}</a>{" "}
          {instance.version !== null && (
            <a href={link(["instances"], { name: instance.orchestration, version: instance.version })}>
              {instance.version}
            </a>
          )}
        </span>
        <span>execution {instance.executionId}</span>
        <span>
          created <Ago atMs={instance.createdAtMs} />
        </span>
        {detail.startsAtMs !== null && (
          <span class="badge amber">
            <span>
              begins <Ago atMs={detail.startsAtMs} />
            </span>
          </span>
        )}
        <span>
          last turn <Ago atMs={instance.updatedAtMs} />
        </span>
        <span>
          {instance.status === "Running"
            ? (
              <>
                runs for <For sinceMs={instance.createdAtMs} />
              </>
            )
            : `took ${duration(instance.updatedAtMs - instance.createdAtMs)}`}
        </span>
        {instance.customStatus !== null && <span class="break">custom status: {instance.customStatus}</span>}
        {detail.ofDuroxide !== null && <span class="badge">pinned to Duroxide {detail.ofDuroxide}</span>}
      </p>
      <Attributes of={instance.attributes} hasLinks />
    </header>
  )
}

export const isRetriable = ({ block, status }: Instance): boolean =>
  block !== null || status === "Failed" || status === "Cancelled"

const ActionsMenu = ({ detail, onDo }: { readonly detail: InstanceDetail; readonly onDo: (doing: Doing) => void }) => {
  const readOnly = useReadOnly()
  const { parentId, pause, status } = detail.instance
  const runs = status === "Running" || status === "ContinuedAsNew"
  const canRetry = isRetriable(detail.instance)
  const item = (text: string, doing: Doing, isPossible: boolean, note?: string) => (
    <MenuItem
      text={text}
      note={readOnly === undefined ? note : undefined}
      isDisabled={readOnly !== undefined || !isPossible}
      onClick={() => onDo(doing)}
    />
  )
  return (
    <Menu label="Actions">
      {readOnly !== undefined && <p class="menu-note">{readOnly}</p>}
      {item("Send a signal…", { action: "signal", name: null }, runs)}
      {item("Ask a request…", { action: "request", name: null }, runs, "and wait for its answer")}
      {item(
        "Retry…",
        { action: "retry", from: null },
        canRetry,
        canRetry ? undefined : "of one that failed, was cancelled or is blocked"
      )}
      {item("Fork at an event…", { action: "fork", event: null }, true)}
      {pause === null || pause.target.kind !== "instance"
        ? item("Pause…", { action: "pause" }, runs)
        : item("Resume…", { action: "resume", target: pause.target }, true)}
      <hr />
      {item("Interrupt…", { action: "interrupt" }, runs, "it cleans up, and ends")}
      {item("Terminate…", { action: "terminate" }, runs, "it ends without clean-up")}
      {item(
        "Delete…",
        { action: "delete" },
        parentId === null,
        parentId === null ? "with its descendants" : "a child is deleted with its parent"
      )}
    </Menu>
  )
}
