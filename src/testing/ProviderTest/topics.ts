/**
 * All topics of the suite, in order.
 */
import { atomicity } from "./atomicity.ts"
import { attributes } from "./attributes.ts"
import { blocks } from "./blocks.ts"
import { bulkDeletion } from "./bulkDeletion.ts"
import { cancellation } from "./cancellation.ts"
import { capabilityFiltering } from "./capabilityFiltering.ts"
import { customStatus } from "./customStatus.ts"
import { deletion } from "./deletion.ts"
import { errorHandling } from "./errorHandling.ts"
import { explanations } from "./explanations.ts"
import { firstTurns } from "./firstTurns.ts"
import { handover } from "./handover.ts"
import { instanceCreation } from "./instanceCreation.ts"
import { instanceLimits } from "./instanceLimits.ts"
import { instanceLocking } from "./instanceLocking.ts"
import { kvStore } from "./kvStore.ts"
import { limits } from "./limits.ts"
import { lockExpiration } from "./lockExpiration.ts"
import { longPolling } from "./longPolling.ts"
import { management } from "./management.ts"
import { multiExecution } from "./multiExecution.ts"
import { operatorActions } from "./operatorActions.ts"
import { optimisticTurns } from "./optimisticTurns.ts"
import { pauses } from "./pauses.ts"
import { poisonMessage } from "./poisonMessage.ts"
import { processes } from "./processes.ts"
import { prune } from "./prune.ts"
import { queueSemantics } from "./queueSemantics.ts"
import { queueViews } from "./queueViews.ts"
import { retries } from "./retries.ts"
import { serving } from "./serving.ts"
import { sessions } from "./sessions.ts"
import { starts } from "./starts.ts"
import { streams } from "./streams.ts"
import { tagFiltering } from "./tagFiltering.ts"

export const topics = {
  atomicity,
  attributes,
  bulkDeletion,
  cancellation,
  capabilityFiltering,
  customStatus,
  deletion,
  errorHandling,
  explanations,
  firstTurns,
  handover,
  instanceCreation,
  instanceLimits,
  instanceLocking,
  kvStore,
  limits,
  lockExpiration,
  longPolling,
  management,
  multiExecution,
  optimisticTurns,
  poisonMessage,
  blocks,
  retries,
  processes,
  pauses,
  operatorActions,
  prune,
  queueSemantics,
  queueViews,
  serving,
  sessions,
  starts,
  streams,
  tagFiltering
}
