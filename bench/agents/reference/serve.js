/** Starts the open reference server as its own command does: `node serve.js FOLDER GRAPH`. Prints its address. */
import { startServer } from '@langchain/langgraph-api/server';

const [cwd, graph] = process.argv.slice(2);
const { host } = await startServer({ port: 0, host: '127.0.0.1', nWorkers: 10, cwd, graphs: { burst: graph } });
process.send({ url: `http://${host}` });
