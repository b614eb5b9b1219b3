import { useState } from "preact/hooks"
import { toast, useSession } from "../../app/contexts.ts"
import { api } from "../../client/client.ts"
import type { InstanceDetail } from "../../client/models.ts"
import { initialPayload, PayloadForm, sendPayload, usePayload } from "../../forms/PayloadForm.tsx"
import { ActionDialog } from "../../parts/dialog.tsx"
import { SelectField, TextField } from "../../parts/fields.tsx"

const other = "\u0000other"

export const SignalDialog = (props: {
  readonly detail: InstanceDetail
  readonly name: string | null
  readonly onDone: () => void
  readonly onClose: () => void
}) => {
  const { signals } = useSession()
  const { instance: { instanceId }, waits } = props.detail
  const awaited = [...new Set(waits.flatMap((wait) => wait.kind === "signal" && wait.name !== null ? [wait.name] : []))]
  const known = signals.map((signal) => signal.name).filter((name) => !awaited.includes(name))
  const first = props.name ?? awaited[0] ?? known[0] ?? other
  const [chosen, setChosen] = useState(first)
  const [typed, setTyped] = useState("")
  const schemaOf = (name: string) => signals.find((signal) => signal.name === name)?.payload
  const [payload, setPayload] = usePayload(schemaOf(first))
  const name = chosen === other ? typed.trim() : chosen
  return (
    <ActionDialog
      title={`Send a signal to ${instanceId}`}
      confirm="Send"
      canRun={name !== ""}
      effect={() =>
        sendPayload(
          payload,
          setPayload,
          (json) => api.operate.signal({ payload: { instanceId, name, payload: json } })
        )}
      onDone={({ message }) => {
        toast(message)
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <SelectField
        label="Signal"
        value={chosen}
        options={[
          ...awaited.map((one) => [one, `${one} (it waits for it)`] as const),
          ...known.map((one) => [one, one] as const),
          [other, "another one"]
        ]}
        onInput={(value) => {
          setChosen(value)
          setPayload(initialPayload(schemaOf(value)))
        }}
      />
      {chosen === other && <TextField label="Name" value={typed} onInput={setTyped} />}
      <PayloadForm key={chosen} state={payload} onChange={setPayload} />
    </ActionDialog>
  )
}
