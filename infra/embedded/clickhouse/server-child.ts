/**
 * The child process that is the ClickHouse server: `clickhouse local` out of libchdb, which the start-up query tells to
 * listen. Arguments: path of the library, then those of `clickhouse local`.
 *
 * It never outlives its parent: the IPC channel closes when the parent ends, whatever ended it. It kills itself, because an
 * orderly `exit` waits for the engine's threads, which may run for ever; ClickHouse loses nothing by it.
 */
import ffi from 'ffi-rs';

const end = () => process.kill(process.pid, 'SIGKILL');
process.on('disconnect', end);
process.on('SIGTERM', end);
process.on('SIGINT', () => {});
if (!process.connected) end();

const [path = '', ...args] = process.argv.slice(2);
ffi.open({ library: 'chdb', path });
// In a thread of its own, so that this one goes on hearing the parent. It returns when the start-up query ends.
await ffi.load({
  library: 'chdb',
  funcName: 'chdb_query_cmdline',
  retType: ffi.DataType.External,
  paramsType: [ffi.DataType.I32, ffi.DataType.StringArray],
  paramsValue: [args.length + 1, ['clickhouse', ...args]],
  runInNewThread: true,
});
process.stderr.write('the engine returned by itself\n', end);
