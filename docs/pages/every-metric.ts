// Metrics are made by the modules that keep them. A role loads what it needs when it starts; these bring in all of it.
import '../../api/command-line/run-role.ts';
import '../../api/command-line/serve-role.ts';
import '../../infra/event-log/kafka/kafka-log.ts';
