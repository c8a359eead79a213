// Lets the search work when the pages are opened from files. Browsers do not start workers for file:// pages, so this
// replacement runs the worker's script in a hidden frame of the same page. Over HTTP it does nothing.
//
// The theme's plugin "offline" writes the search index as a script, and expects a file of this name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.queue = []; // messages that arrive before the script has loaded
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const inner = frame.contentDocument;
      inner.open(); // an empty page that the browser does not replace later
      inner.close();
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.createElement("script");
      script.src = String(url);
      script.onload = () => {
        const waiting = this.queue;
        this.queue = null;
        waiting.forEach((data) => this.deliver(data));
      };
      inner.head.append(script);
    }

    postMessage(data) {
      if (this.queue) {
        this.queue.push(data);
      } else {
        this.deliver(data);
      }
    }

    deliver(data) {
      this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data }));
    }

    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
