import { shortPollingSuite } from "../utils/prismaSuite.ts"

shortPollingSuite("atomicity", "errorHandling", "instanceCreation", "instanceLocking", "lockExpiration")
