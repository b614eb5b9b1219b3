/** Dialogs, and the one that asks before something is done. */
import type * as Effect from "effect/Effect"
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef } from "preact/hooks"
import { useAction } from "../client/query.ts"
import { Problem } from "./panel.tsx"

export const Dialog = (props: {
  readonly title: string
  readonly isWide?: boolean
  readonly onClose: () => void
  readonly onSubmit: (form: HTMLFormElement) => void
  readonly buttons: ComponentChildren
  readonly children: ComponentChildren
}) => {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const dialog = ref.current
    const before = document.activeElement
    dialog?.showModal()
    return () => {
      dialog?.close()
      if (before instanceof HTMLElement) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={ref}
      class={props.isWide === true ? "wide" : undefined}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        props.onClose()
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault()
          props.onSubmit(event.currentTarget)
        }}
      >
        <div class="head">
          <h2 id={id}>{props.title}</h2>
        </div>
        <div class="content">{props.children}</div>
        <div class="foot">
          <button type="button" class="button" onClick={props.onClose}>Close</button>
          {props.buttons}
        </div>
      </form>
    </dialog>
  )
}

/** Asks, does it, closes. A failure stays in the dialog. */
export const ActionDialog = <A, E>(props: {
  readonly title: string
  readonly confirm: string
  readonly isDanger?: boolean
  readonly isWide?: boolean
  /** Null while what was filled in cannot be sent. */
  readonly effect: () => Effect.Effect<A, E> | null
  readonly canRun?: boolean
  readonly onDone: (answer: A) => void
  readonly onClose: () => void
  readonly children?: ComponentChildren
}) => {
  const action = useAction()
  const submit = (form: HTMLFormElement) => {
    if (action.isRunning || props.canRun === false) return
    const effect = props.effect()
    if (effect === null) {
      // Once its problem is shown there.
      setTimeout(() => form.querySelector<HTMLElement>("[aria-invalid=\"true\"]")?.focus(), 50)
      return
    }
    action.run(effect, (answer) => {
      props.onDone(answer)
      props.onClose()
    })
  }
  return (
    <Dialog
      title={props.title}
      isWide={props.isWide === true}
      onClose={props.onClose}
      onSubmit={submit}
      buttons={
        <button
          type="submit"
          class={props.isDanger === true ? "button main danger" : "button main"}
          disabled={action.isRunning || props.canRun === false}
        >
          {action.isRunning ? "Working…" : props.confirm}
        </button>
      }
    >
      {props.children}
      {action.problem !== null && <Problem text={action.problem} />}
    </Dialog>
  )
}
