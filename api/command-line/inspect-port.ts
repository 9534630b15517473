/** Checks of the ports of the agent server and the tool server in `runlake doctor`. */
import type { Config } from '../../infra/config/settings.ts';
import { formatHost } from '../../infra/network/format-host.ts';
import { serverName } from '../agent-server/system.ts';
import { healthText } from '../tools/operations.ts';
import { checkPort, getAgentServerAddress, type ListenAddress, toolServerAddress } from './check-port.ts';
import type { PrintFinding } from './inspect-agents.ts';

const timeoutMs = 5_000;

interface InspectedServer {
  /** `Agent` or `Tool`. */
  readonly name: string;
  readonly address: ListenAddress;
  /** A path that needs no authentication. */
  readonly path: string;
  /** Whether a response to it is that of the server. */
  readonly recognise: (response: Response) => boolean | Promise<boolean>;
}

/** Reports whether the agent server answers at its address, or could listen there. */
export function inspectAgentPort(config: Config, printFinding: PrintFinding): Promise<void> {
  return inspectPort(
    {
      name: 'Agent',
      address: getAgentServerAddress(config),
      // It cannot be disabled by the `http` settings of a langgraph.json.
      path: '/ok',
      recognise: ({ headers }) => headers.get('server') === serverName,
    },
    printFinding,
  );
}

/** Reports whether the tool server answers at its address, or could listen there. */
export function inspectToolPort(config: Config, printFinding: PrintFinding): Promise<void> {
  const recognise = async (response: Response) => (await response.text()) === healthText;
  return inspectPort({ name: 'Tool', address: toolServerAddress(config), path: '/health', recognise }, printFinding);
}

async function inspectPort(
  { name, address, path, recognise }: InspectedServer,
  printFinding: PrintFinding,
): Promise<void> {
  const { host, port, settings } = address;
  // A free port is chosen at the start.
  if (port === 0) return;
  const url = `http://${formatHost(host, port)}`;
  const isResponding = () =>
    fetch(`${url}${path}`, { signal: AbortSignal.timeout(timeoutMs) })
      .then(recognise)
      .catch(() => false);
  if (await isResponding()) return printFinding(true, `${name} server`, `answers at ${url}`);
  try {
    await checkPort(address);
    printFinding(true, `${name} port`, `${host}:${port} is free`);
  } catch (error) {
    // Since the first check, a server that was starting may have taken the port.
    if (await isResponding()) return printFinding(true, `${name} server`, `answers at ${url}`);
    printFinding(
      false,
      `${name} port`,
      error instanceof Error ? error.message : String(error),
      `Set ${settings}_PORT to another port, or stop the process that listens on it.`,
    );
  }
}
