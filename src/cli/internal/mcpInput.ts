/**
 * What an MCP client sends: one JSON value a line. Lines that are not, or are too long, get an error for an answer and
 * go no further.
 */

/** Characters of one message. */
const maxMessage = 1_000_000

/** The lines of the input that hold JSON, each with its end; `refuse` answers the others. */
export async function* messages(
  pieces: AsyncIterable<string>,
  refuse: (error: { readonly code: number; readonly message: string }) => void
): AsyncGenerator<string> {
  let line = ""
  let isTooLong = false
  const tooLong = () => refuse({ code: -32_600, message: `a message has more than ${maxMessage} characters` })
  for await (const piece of pieces) {
    const [first = "", ...rest] = piece.split("\n")
    for (const [index, part] of [first, ...rest].entries()) {
      if (index > 0) {
        if (isTooLong) tooLong()
        else if (isJson(line)) yield `${line}\n`
        else if (line.trim() !== "") refuse({ code: -32_700, message: "the message is not JSON" })
        line = ""
        isTooLong = false
      }
      if (isTooLong || line.length + part.length > maxMessage) {
        isTooLong = true
        line = ""
      } else {
        line += part
      }
    }
  }
}

const isJson = (line: string) => {
  try {
    JSON.parse(line)
    return true
  } catch {
    return false
  }
}
