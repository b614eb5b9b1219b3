import { useState } from "preact/hooks"
import { useSession } from "../../app/contexts.ts"
import { api } from "../../client/client.ts"
import type { Asked, InstanceDetail } from "../../client/models.ts"
import { useAction } from "../../client/query.ts"
import { initialPayload, PayloadForm, sendPayload, usePayload } from "../../forms/PayloadForm.tsx"
import { Dialog } from "../../parts/dialog.tsx"
import { SelectField, TextField } from "../../parts/fields.tsx"
import { Problem } from "../../parts/panel.tsx"
import { Payload } from "../../parts/payload.tsx"

const other = "\u0000other"

const tones = { Answered: "green", Refused: "amber", Failed: "red", TimedOut: "amber" }

/** Asks a running instance, and shows what it answers. */
export const RequestDialog = (props: {
  readonly detail: InstanceDetail
  readonly name: string | null
  readonly onDone: () => void
  readonly onClose: () => void
}) => {
  const { requests } = useSession()
  const { instance: { instanceId }, waits } = props.detail
  const served = [
    ...new Set(waits.flatMap((wait) => wait.kind === "request" && wait.name !== null ? [wait.name] : []))
  ]
  const known = requests.map(({ name }) => name).filter((name) => !served.includes(name))
  const first = props.name ?? served[0] ?? known[0] ?? other
  const [chosen, setChosen] = useState(first)
  const [typed, setTyped] = useState("")
  const [asked, setAsked] = useState<Asked | null>(null)
  const schemaOf = (name: string) => requests.find((request) => request.name === name)?.payload
  const [payload, setPayload] = usePayload(schemaOf(first))
  const action = useAction()
  const name = chosen === other ? typed.trim() : chosen
  const canRun = name !== "" && !action.isRunning
  const submit = (form: HTMLFormElement) => {
    if (!canRun) return
    setAsked(null)
    const effect = sendPayload(
      payload,
      setPayload,
      (json) => api.operate.request({ payload: { instanceId, name, payload: json } })
    )
    // Once its problem is shown there.
    if (effect === null) setTimeout(() => form.querySelector<HTMLElement>("[aria-invalid=\"true\"]")?.focus(), 50)
    else {
      action.run(effect, (answer) => {
        setAsked(answer)
        props.onDone()
      })
    }
  }
  return (
    <Dialog
      title={`Ask ${instanceId}`}
      isWide
      onClose={props.onClose}
      onSubmit={submit}
      buttons={
        <button type="submit" class="button main" disabled={!canRun}>
          {action.isRunning ? "Waiting for the answer…" : asked === null ? "Ask" : "Ask again"}
        </button>
      }
    >
      <SelectField
        label="Request"
        value={chosen}
        options={[
          ...served.map((one) => [one, `${one} (it waits for it)`] as const),
          ...known.map((one) => [one, one] as const),
          [other, "another one"]
        ]}
        onInput={(value) => {
          setChosen(value)
          setPayload(initialPayload(schemaOf(value)))
          setAsked(null)
        }}
      />
      {chosen === other && <TextField label="Name" value={typed} onInput={setTyped} />}
      <PayloadForm key={chosen} state={payload} onChange={setPayload} />
      <div role="status" class="stack-small">
        {asked !== null && (
          <>
            <p>
              <span class={`badge ${tones[asked.outcome]}`}>
                {asked.outcome === "TimedOut" ? "No answer yet" : asked.outcome}
              </span>{" "}
              {asked.message}
            </p>
            {(asked.outcome === "Answered" || asked.outcome === "Refused") && (
              <Payload text={asked.answer} label="answer" />
            )}
          </>
        )}
      </div>
      {action.problem !== null && <Problem text={action.problem} />}
    </Dialog>
  )
}
