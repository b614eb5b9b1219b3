/**
 * What an editor shows where a name is pointed at, from the language server of the compiler.
 */
import { spawn } from "node:child_process"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { root } from "./packed.ts"

/** The types shown at the ends of the given texts, each of which the program has. Its file need not exist. */
export const quickInfo = async (file: string, program: string, places: ReadonlyArray<string>) => {
  const server = spawn(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "--lsp", "--stdio"], {
    cwd: root,
    stdio: ["pipe", "pipe", "inherit"]
  })
  try {
    const waiting = new Map<number, (result: any) => void>()
    const send = (message: object) => {
      const text = JSON.stringify({ jsonrpc: "2.0", ...message })
      server.stdin.write(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`)
    }
    const ended = new Promise<never>((_, reject) => {
      server.once("error", reject).once("exit", (code) => reject(new Error(`the language server ended with ${code}`)))
    })
    const ask = (method: string, params: object): Promise<any> => {
      const id = waiting.size + 1
      const answer = new Promise((resolve) => waiting.set(id, resolve))
      send({ id, method, params })
      return Promise.race([answer, ended])
    }
    let unread = Buffer.alloc(0)
    server.stdout.on("data", (bytes: Buffer) => {
      unread = Buffer.concat([unread, bytes])
      for (;;) {
        const [head, length] = /^Content-Length: (\d+)\r\n(?:.+\r\n)*\r\n/.exec(unread.toString("latin1")) ?? []
        if (head === undefined || unread.length < head.length + Number(length)) return
        const message = JSON.parse(unread.subarray(head.length, head.length + Number(length)).toString())
        unread = unread.subarray(head.length + Number(length))
        // A question of the server, such as for settings: it has none.
        if (message.method !== undefined && message.id !== undefined) send({ id: message.id, result: null })
        else waiting.get(message.id)?.(message.result)
      }
    })

    const textDocument = { uri: pathToFileURL(join(root, file)).href }
    const capabilities = { textDocument: { hover: { contentFormat: ["markdown"] } } }
    await ask("initialize", { processId: process.pid, rootUri: pathToFileURL(root).href, capabilities })
    send({ method: "initialized", params: {} })
    send({
      method: "textDocument/didOpen",
      params: { textDocument: { ...textDocument, languageId: "typescript", version: 1, text: program } }
    })
    const shown: Array<string> = []
    for (const place of places) {
      const before = program.slice(0, program.indexOf(place) + place.length).split("\n")
      const position = { line: before.length - 1, character: before.at(-1)!.length - 1 }
      const { contents } = await ask("textDocument/hover", { textDocument, position })
      shown.push(/^```\w+\n(.*?)\n```/s.exec(contents.value)![1]!.trim())
    }
    return shown
  } finally {
    server.kill()
  }
}
