import { useEffect, useState } from "preact/hooks"
import { hidePayloads } from "../app/settings.ts"
import { useSignal } from "../client/signal.ts"

export const CopyButton = ({ text, label }: { readonly text: string; readonly label: string }) => {
  const [done, setDone] = useState(false)
  useEffect(() => {
    if (!done) return
    const timer = setTimeout(() => setDone(false), 1500)
    return () => clearTimeout(timer)
  }, [done])
  // Browsers have no clipboard for pages that came by plain HTTP from another host.
  if (!("clipboard" in navigator)) return null
  return (
    <button
      type="button"
      class="button small plain"
      aria-label={`Copy ${label}`}
      onClick={() => void navigator.clipboard.writeText(text).then(() => setDone(true), () => setDone(false))}
    >
      {done ? "Copied" : "Copy"}
    </button>
  )
}

/** Whether payloads are out of sight in this browser. */
export const useIsHidden = (): boolean => useSignal(hidePayloads) === "yes"

/** JSON with line breaks and indents; any other text as it is. */
export const pretty = (text: string): string => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}

/** A payload with line breaks. Null: the server keeps it from this caller. */
export const Payload = ({ label, text }: { readonly text: string | null; readonly label: string }) => {
  const isHidden = useIsHidden()
  if (text === null) return <p class="muted small">You may not see payloads.</p>
  if (isHidden) return <p class="muted small">Payloads are hidden. Show them with the switch above.</p>
  const shown = pretty(text)
  return (
    <div class="with-copy">
      <pre class="payload" tabIndex={0} aria-label={label}>{shown}</pre>
      <CopyButton text={shown} label={label} />
    </div>
  )
}

/** A payload in one line. */
export const Short = ({ text }: { readonly text: string }) =>
  useIsHidden() ? <span class="muted">hidden</span> : <span class="clip">{text}</span>
