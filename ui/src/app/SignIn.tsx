import { useEffect, useState } from "preact/hooks"
import { setToken } from "../client/client.ts"
import { toasts } from "./contexts.ts"

/** Asks for the token. It stays in this tab until the tab is closed. */
export const SignIn = ({ message }: { readonly message: string }) => {
  const [token, setText] = useState("")
  useEffect(() => toasts.set([]), [])
  return (
    <main class="sign-in">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault()
          if (token.trim() !== "") setToken(token.trim())
        }}
      >
        <h1>Sign in</h1>
        <p class="muted" role="status">{message}</p>
        <div class="field">
          <label for="token">Token</label>
          <input
            id="token"
            type="password"
            autocomplete="current-password"
            value={token}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <span class="hint">It is kept in this tab until you close it.</span>
        </div>
        <button class="button main" type="submit">Sign in</button>
      </form>
    </main>
  )
}
