// Starts `ms-tune server` for the files that ms-tune reads, and restarts it when its settings change.
import { ExtensionContext, commands, env, window, workspace } from "vscode";
import { LanguageClient, RevealOutputChannelOn } from "vscode-languageclient/node";

const LANGUAGES = ["yaml", "shellscript", "python", "dotenv"];
let client: LanguageClient | undefined;

function serverArguments(): string[] {
  const settings = workspace.getConfiguration("msTune");
  const chosen = settings.get<string>("language", "auto");
  const language = chosen === "auto" ? (env.language.startsWith("zh") ? "zh" : "en") : chosen;
  const found = ["server", "--lang", language];
  for (const [name, option] of [["chip", "--chip"], ["deviceMemory", "--device-memory"]]) {
    const value = settings.get<string>(name, "").trim();
    if (value) found.push(option, value);
  }
  return [...found, ...settings.get<string[]>("arguments", [])];
}

async function start(): Promise<void> {
  const command = workspace.getConfiguration("msTune").get<string>("path", "ms-tune");
  client = new LanguageClient(
    "ms-tune",
    "ms-tune",
    { command, args: serverArguments() },
    {
      documentSelector: LANGUAGES.map((language) => ({ scheme: "file", language })),
      revealOutputChannelOn: RevealOutputChannelOn.Never,
    },
  );
  try {
    await client.start();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    void window.showErrorMessage(`ms-tune: '${command}' does not start (${reason}). See the setting msTune.path; ms-tune needs its extra 'server'.`);
  }
}

export async function deactivate(): Promise<void> {
  const old = client;
  client = undefined;
  await old?.dispose().catch(() => undefined);
}

export async function activate(context: ExtensionContext): Promise<void> {
  const restart = async () => {
    await deactivate();
    await start();
  };
  context.subscriptions.push(
    commands.registerCommand("msTune.restart", restart),
    workspace.onDidChangeConfiguration(async (change) => {
      if (change.affectsConfiguration("msTune")) await restart();
    }),
  );
  await start();
}
