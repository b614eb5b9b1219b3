/**
 * Payloads as operators see them: what is sealed shows its codec, its key and its size; with the codec, the plain text.
 */
import * as Effect from "effect/Effect"
import type { Admin } from "../provider/Admin.ts"
import type { PayloadCodec } from "../provider/PayloadCodec.ts"
import { reveal } from "../provider/shared/revealing.ts"

type Service = Admin["Service"]

/** What reads payloads, with them decoded. */
export const revealed = (admin: Service, codec: Pick<PayloadCodec["Service"], "decode">): Service => {
  const opened = <A, E>(read: Effect.Effect<A, E>) => Effect.flatMap(read, (value) => reveal(value, codec))
  return {
    ...admin,
    list: (search) => opened(admin.list(search)),
    explain: (instanceId) => opened(admin.explain(instanceId)),
    readHistory: (instanceId) => opened(admin.readHistory(instanceId)),
    readHistoryWithExecutionId: (instanceId, executionId) =>
      opened(admin.readHistoryWithExecutionId(instanceId, executionId)),
    getInstanceInfo: (instanceId) => opened(admin.getInstanceInfo(instanceId)),
    getExecutionInfo: (instanceId, executionId) => opened(admin.getExecutionInfo(instanceId, executionId)),
    listMessagesBeforeStart: (options) => opened(admin.listMessagesBeforeStart(options)),
    readChunks: (instanceId, stream, options) => opened(admin.readChunks(instanceId, stream, options)),
    getQueuedWork: (instanceId) => opened(admin.getQueuedWork(instanceId))
  }
}
