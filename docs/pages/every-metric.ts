// Metrics are made by the modules that keep them. A role loads what it needs when it starts (`load-parts.ts`); these
// bring in all of it.
import '../../api/command-line/run-role.ts';
import '../../api/command-line/serve-role.ts';
import '../../api/command-line/answering-services.ts';
import '../../api/command-line/serve-http.ts';
import '../../api/command-line/start-agents.ts';
import '../../api/command-line/start-exports.ts';
import '../../api/command-line/start-storing.ts';
import '../../api/command-line/start-workers.ts';
import '../../api/main/operations.ts';
import '../../infra/event-log/kafka/kafka-log.ts';
