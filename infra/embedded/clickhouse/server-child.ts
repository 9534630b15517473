/**
 * The child process that runs the ClickHouse server. The server is `clickhouse local` of libchdb, which starts to
 * listen when its start-up query runs. Arguments: path of the library, followed by the arguments of `clickhouse local`.
 *
 * The child never outlives its parent. When the parent ends for any reason, the IPC channel closes and the child kills
 * itself. It does not use a normal `exit`, because that waits for the engine's threads, which may run forever.
 * ClickHouse loses no committed data.
 */
import ffi from 'ffi-rs';

// The engine creates files that all users can read, if it may.
process.umask(0o077);

const killProcess = () => process.kill(process.pid, 'SIGKILL');
process.on('disconnect', killProcess);
process.on('SIGTERM', killProcess);
process.on('SIGINT', () => {});
if (!process.connected) killProcess();

const [path = '', ...args] = process.argv.slice(2);
ffi.open({ library: 'chdb', path });
// The engine runs in its own thread, so that this thread can still receive IPC events. The call returns when the
// start-up query ends.
await ffi.load({
  library: 'chdb',
  funcName: 'chdb_query_cmdline',
  retType: ffi.DataType.External,
  paramsType: [ffi.DataType.I32, ffi.DataType.StringArray],
  paramsValue: [args.length + 1, ['clickhouse', ...args]],
  runInNewThread: true,
});
process.stderr.write('the engine returned unexpectedly\n', killProcess);
