import { useState } from "preact/hooks"
import { toast, useSession } from "../app/contexts.ts"
import { go, toInstance } from "../app/route.ts"
import { api } from "../client/client.ts"
import { now } from "../client/clock.ts"
import { initialPayload, PayloadForm, sendPayload, usePayload } from "../forms/PayloadForm.tsx"
import { ActionDialog } from "../parts/dialog.tsx"
import { SelectField, TextField } from "../parts/fields.tsx"
import { durationOf, timeOf } from "../parts/times.ts"
import { compareVersions } from "./versions.ts"

/** When it begins: at once, after a delay, at a time; undefined for another text. */
const startOf = (
  text: string
): { readonly delayMs: number } | { readonly startAtMs: number } | Record<string, never> | undefined => {
  if (text.trim() === "") return {}
  const delayMs = durationOf(text)
  if (delayMs !== undefined) return { delayMs }
  const startAtMs = timeOf(text, now())
  return startAtMs === undefined ? undefined : { startAtMs: Math.floor(startAtMs) }
}

/** Starts an instance, with a form where the Schema of its payload is known. */
export const StartDialog = (props: {
  readonly name: string
  readonly version: string | null
  readonly names: ReadonlyArray<string>
  readonly onClose: () => void
}) => {
  const { orchestrations } = useSession()
  const [name, setName] = useState(props.name)
  const [version, setVersion] = useState(props.version ?? "")
  const [id, setId] = useState("")
  const [when, setWhen] = useState("")
  const start = startOf(when)
  const schemaOf = (ofName: string, ofVersion: string) =>
    orchestrations
      .filter((one) => one.name === ofName && (ofVersion === "" || one.version === ofVersion))
      .toSorted((one, other) => compareVersions(one.version, other.version))
      .at(-1)?.payload
  const [payload, setPayload] = usePayload(schemaOf(name, version))
  const choose = (nextName: string, nextVersion: string) => {
    setName(nextName)
    setVersion(nextVersion)
    setPayload(initialPayload(schemaOf(nextName, nextVersion)))
  }
  const versions = orchestrations.filter((one) => one.name === name).map((one) => one.version)
    .toSorted(compareVersions).toReversed()
  if (props.version !== null && !versions.includes(props.version) && name === props.name) versions.push(props.version)
  return (
    <ActionDialog
      title="Start an instance"
      confirm="Start"
      isWide
      canRun={name !== "" && start !== undefined}
      effect={() =>
        sendPayload(payload, setPayload, (json) =>
          api.operate.start({
            payload: {
              orchestration: name,
              payload: json,
              ...(version === "" ? {} : { version }),
              ...(id.trim() === "" ? {} : { instanceId: id.trim() }),
              ...start
            }
          }))}
      onDone={({ instanceId, message }) => {
        toast(message)
        go(toInstance(instanceId))
      }}
      onClose={props.onClose}
    >
      <div class="fields">
        {props.names.length === 0
          ? <TextField label="Orchestration" value={name} onInput={setName} />
          : (
            <SelectField
              label="Orchestration"
              value={name}
              options={props.names.map((one) => [one, one] as const)}
              onInput={(value) => choose(value, "")}
            />
          )}
        <SelectField
          label="Version"
          value={version}
          options={[["", "the newest that is served"], ...versions.map((one) => [one, one] as const)]}
          onInput={(value) => choose(name, value)}
        />
        <TextField label="Instance id (optional)" value={id} onInput={setId} placeholder="a random one" />
        <TextField
          label="Begins (optional)"
          value={when}
          onInput={setWhen}
          placeholder="at once"
          problem={start === undefined
            ? "Write a delay such as 10 min, or a time such as 2026-12-24T18:00."
            : undefined}
          hint="10 min: so much later. 2026-12-24T18:00: then, by your clock."
        />
      </div>
      <PayloadForm state={payload} onChange={setPayload} />
    </ActionDialog>
  )
}
