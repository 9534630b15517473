// Modules register their metrics when they are imported. A role imports only what it needs (`load-parts.ts`); these
// imports load all of them.
import '../../api/command-line/run-role.ts';
import '../../api/command-line/serve-role.ts';
import '../../api/command-line/main-api-services.ts';
import '../../api/command-line/serve-http.ts';
import '../../api/command-line/start-agents.ts';
import '../../api/command-line/start-deployments.ts';
import '../../api/command-line/start-exports.ts';
import '../../api/command-line/start-storing.ts';
import '../../api/command-line/start-workers.ts';
import '../../api/main/operations.ts';
import '../../infra/event-log/kafka/kafka-log.ts';
